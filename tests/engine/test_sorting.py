"""Sorting, searching and values made from numbers."""

from __future__ import annotations

import graphs
import pytest
import torch

import tensortap

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
MADE = [*DTYPES, torch.complex64]


def _values(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    if dtype.is_floating_point:
        values = torch.randn(sizes, dtype=torch.float64).to(dtype)
        flat = values.view(-1)
        for place, odd in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0, float("nan"))):
            flat[place * 7 % flat.numel()] = odd
        return values
    return torch.randint(0 if dtype in (torch.bool, torch.uint8) else -100, 2 if dtype == torch.bool else 100,
        sizes).to(dtype)


@pytest.mark.parametrize("length", [1, 7, 40, 41, 300, 5000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sort_is_stable_and_knows_nan(dtype, length):
    torch.manual_seed(length)
    x = _values(dtype, 3, length)
    for given in (x, x.t().contiguous().t()):
        graphs.compare(
            lambda x: [
                x.sort(dim=1, stable=True), x.sort(dim=-1, descending=True, stable=True), x.t().sort(dim=0,
                stable=True),
            ],
            [given], rtol=0, atol=0,
        )  # fmt: skip


def test_integers_at_the_ends_of_their_range():
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        ends = torch.iinfo(dtype)
        x = torch.tensor([0, ends.min, ends.max, -1, ends.min + 1, ends.max - 1, 1] * 20, dtype=dtype)
        graphs.compare(lambda x: [x.sort(stable=True), x.sort(stable=True, descending=True)], [x], rtol=0, atol=0)


@pytest.mark.parametrize("k", [0, 1, 3, 50, 200, 1000])
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_topk(engine, dtype, k):
    """Values as torch gives them; among equal ones the indices are the lowest, where torch promises nothing."""
    x = _values(dtype, 4, 1000)
    for largest in (True, False):
        def f(x, largest=largest):
            return x.topk(k, dim=1, largest=largest)

        values, indices = engine.compile(f)(x)
        expected = f(x).values
        torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(x.gather(1, indices), values, rtol=0, atol=0, equal_nan=True)
        order = x.sort(dim=1, descending=largest, stable=True).indices[:, :k]
        assert torch.equal(indices, order)
        assert engine.host() == {}


def test_one_element_and_none():
    def f(x, y):
        return x.sort(), x.topk(1), y.sort(0), y.sort(1, descending=True), y.topk(2, 1)

    graphs.compare(f, [torch.tensor(3.0), torch.empty(0, 4)])


def test_argsort_and_gradients(engine):
    def f(x):
        values, indices = x.sort(dim=0, descending=True)
        return values.exp(), x.topk(3, dim=1).values * 2, x.argsort(1), indices

    engine.check(f, torch.randn(6, 9, requires_grad=True), backward=True)


@pytest.mark.parametrize("dtype", [*DTYPES[1:]], ids=str)
def test_searchsorted(dtype):
    row = torch.tensor([1, 1, 3, 4, 4, 9], dtype=dtype)
    rows = torch.stack([row, row + 1])
    values = torch.tensor([[0, 1, 2, 4], [9, 10, 3, 5]], dtype=dtype)
    sorter = torch.tensor([2, 0, 1, 5, 3, 4])
    shuffled = torch.empty_like(row)
    shuffled[sorter] = row

    def f(row, rows, values, shuffled, sorter):
        return [
            torch.searchsorted(row, values), torch.searchsorted(row, values, right=True),
            torch.searchsorted(rows, values, side="right", out_int32=True), torch.bucketize(values.t(), row),
            torch.bucketize(values, row, right=True, out_int32=True),
            torch.searchsorted(shuffled, values.t(), sorter=sorter),
        ]  # fmt: skip

    graphs.compare(f, [row, rows, values, shuffled, sorter], rtol=0, atol=0)


def test_nan_belongs_behind_everything():
    row, values = torch.tensor([1.0, 2.0, float("inf")]), torch.tensor([float("nan"), float("inf"), 1.5])
    graphs.compare(lambda r, v: [torch.searchsorted(r, v), torch.bucketize(v, r, right=True)], [row, values])


def test_a_sorter_that_points_nowhere(engine):
    compiled = engine.compile(lambda r, v, s: torch.ops.aten.searchsorted(r, v, sorter=s))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.arange(3.0), torch.arange(2.0), torch.tensor([0, 1, 3]))


@pytest.mark.parametrize("dtype", MADE, ids=str)
def test_constants(dtype):
    def f(x):
        return [
            torch.full((3, 4), 2, dtype=dtype), torch.zeros(5, dtype=dtype), torch.ones((2, 0, 3), dtype=dtype),
            x.new_full((2, 2), 1), x.new_zeros(3), x.new_ones((2, 1)), torch.full_like(x, 3), torch.zeros_like(x),
            torch.ones_like(x, dtype=torch.float64), torch.scalar_tensor(1, dtype=dtype), torch.eye(4, dtype=dtype),
            torch.eye(2, 5, dtype=dtype), x.new_full((), 1),
        ]  # fmt: skip

    graphs.compare(f, [torch.ones(3, 5).to(dtype).t()], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_ranges(dtype):
    def f():
        return [
            torch.arange(10, dtype=dtype), torch.arange(3, 100, 7, dtype=dtype), torch.arange(9, 2, -2).to(dtype),
            torch.arange(5, 5, dtype=dtype), torch.arange(20000).to(dtype),
        ]  # fmt: skip

    graphs.compare(f, [])


def test_float_ranges():
    def f():
        return [
            torch.arange(0, 1, 0.1), torch.arange(-2.5, 2.5, 0.25, dtype=torch.float64), torch.linspace(-3, 7, 50),
            torch.linspace(0.5, 0.25, 7, dtype=torch.float64), torch.linspace(3, 9, 1), torch.linspace(0, 1, 0),
            torch.linspace(-2.7, 50.5, 33, dtype=torch.int32), torch.tril_indices(5, 4, -1),
            torch.triu_indices(4, 6, 1),
        ]  # fmt: skip

    graphs.compare(f, [])


def test_empty_values_may_hold_anything(engine):
    def f(x):
        a = torch.empty(3, 4)
        a.copy_(x)
        return a + 1, x.new_empty(2, 3).fill_(7), torch.empty_like(x).zero_()

    engine.check(f, torch.randn(3, 4))


def test_sizes_that_change(engine):
    def f(x):
        n = x.shape[0]
        return torch.arange(n), x.sort(0).values, x.topk(n // 2, 0).values, torch.eye(n), x.new_ones(n, n + 1)

    compiled = engine.compile(f, dynamic=True)
    for n in (4, 7, 12):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), f(x))
    assert tensortap.counters()["graphs"] == 1 and engine.host() == {}


def test_long_rows_for_any_number_of_threads(engine):
    x = torch.randint(0, 50, (6, 20000)).float()
    compiled = engine.compile(lambda x: (x.sort(1), x.topk(100, 1)))
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            results.append(torch.utils._pytree.tree_leaves(compiled(x)))
    finally:
        torch.set_num_threads(threads)
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others, strict=True))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64])
def test_median(engine, dtype):
    """Of equal values torch may name any."""
    xs = [torch.randn(5, 6, 7) * 9, torch.randn(33, 300).t(), torch.randn(8), torch.randn(()), torch.randn(2, 1000)[:, ::2]]
    xs = [(x.abs() if dtype == torch.uint8 else x).to(dtype) for x in xs]
    if dtype.is_floating_point:
        xs[0][1, 2, ::3] = xs[0][:, 0, 0] = xs[1][:, 4] = float("nan")
        xs[2][:] = float("nan")

    def run(xs):
        found = []
        for x in xs:
            for one in (torch.median, torch.nanmedian):
                for dim in range(-1, max(x.ndim - 1, 0)):
                    found += [(x, dim, one(x, dim)), (x, dim, one(x, dim, keepdim=True))]
        return [value for *_, (value, _) in found], [(x, dim, at) for x, dim, (_, at) in found], [torch.median(x) for x in xs], [
            torch.nanmedian(x) for x in xs
        ]

    compiled, expected = engine.compile(run)(xs), run(xs)
    for ours, theirs in zip((compiled[0], *compiled[2:]), (expected[0], *expected[2:])):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    for (x, dim, at), value in zip(compiled[1], expected[0]):
        kept = at if at.ndim == x.ndim else at.unsqueeze(dim)
        torch.testing.assert_close(x.gather(dim, kept).reshape(value.shape), value, rtol=0, atol=0, equal_nan=True)
    assert engine.host() == {}


def test_median_of_what_has_no_equals(engine):
    x = torch.randperm(210).reshape(5, 6, 7).double().requires_grad_()
    engine.check(lambda x: (torch.median(x, 1), torch.nanmedian(x, -1, keepdim=True), torch.median(x)), x, exact=True, backward=True, native=False)
    engine.check(lambda x: (torch.median(x[:, :0], 0), torch.median(x + 1, 0)), x.detach(), exact=True, dynamic=True)
