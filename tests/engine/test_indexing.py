"""Movement and indexing: what is read and written where, for every dtype, every layout, and indexes that are wrong."""

from __future__ import annotations

import graphs
import pytest
import torch

import tensortap

F = torch.nn.functional
aten = torch.ops.aten
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip

MOVES = {
    "cat": lambda x, y: torch.cat([x, y, x], 1),
    "cat first": lambda x, y: torch.cat([y, x[:2]], 0),
    "cat with nothing": lambda x, y: torch.cat([x.new_empty(0), x, y], -1),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "repeat": lambda x, y: x.repeat(2, 3, 1, 2),
    "repeat_interleave": lambda x, y: x.repeat_interleave(3, 1),
    "roll": lambda x, y: x.roll((1, -2), (0, 2)),
    "roll all": lambda x, y: x.contiguous().roll(7),
    "flip": lambda x, y: x.flip(0, 2),
    "rot90": lambda x, y: x.rot90(3, (0, 2)),
    "pad": lambda x, y: F.pad(x, (1, 2, 3, 0, 0, 1), value=1),
    "pad that cuts": lambda x, y: F.pad(x, (-1, 2, 3, -2)),
    "reflect": lambda x, y: F.pad(x, (2, 1), "reflect"),
    "replicate": lambda x, y: F.pad(x.unsqueeze(0), (3, 0, 1, 2), "replicate"),
    "slice_scatter": lambda x, y: x.slice_scatter(y[:, 1:3], 1, 0, 4, 2),
    "select_scatter": lambda x, y: x.select_scatter(y[:, 0], 1, -1),
    "diagonal_scatter": lambda x, y: x[0].diagonal_scatter(y[0, :, 1], 1),
    "slice_backward": lambda x, y: aten.slice_backward(x, [4, 11, 6], 1, 1, 11, 2),
    "select_backward": lambda x, y: aten.select_backward(x[0, 0], [3, 6], 0, -2),
    "tril": lambda x, y: x.tril(-1),
    "triu": lambda x, y: x.triu(2),
    "diag_embed": lambda x, y: torch.diag_embed(x[0], 1),
    "pixel_shuffle": lambda x, y: F.pixel_shuffle(x.reshape(1, 4, 5, 6), 2),
    "pixel_unshuffle": lambda x, y: F.pixel_unshuffle(x.reshape(1, 5, 4, 6), 2),
    "channel_shuffle": lambda x, y: F.channel_shuffle(x.reshape(1, 4, 5, 6), 2),
    "unfold windows": lambda x, y: aten.im2col(x.reshape(1, 4, 5, 6), [2, 3], [1, 2], [1, 0], [2, 1]),
}

# torch has no such kernels for these
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
ABSENT = {torch.bool: {"reflect", "replicate"}, **{dtype: {"unfold windows"} for dtype in INTEGERS}}
LONG_ONLY = {"take", "index_fill", "gather expanded"}

INDEXES = {
    "index": lambda x, y, i, j: x[i],
    "index second": lambda x, y, i, j: x[:, j],
    "index two": lambda x, y, i, j: x[i, j],
    "index two apart": lambda x, y, i, j: x[i, :, j],
    "index broadcast": lambda x, y, i, j: x[i[:, None], j],
    "index all": lambda x, y, i, j: x[i, j, j],
    "index_put": lambda x, y, i, j: x.index_put((i, j), y[0, 0]),
    "index_put rows": lambda x, y, i, j: aten.index_put(x, [None, j], y[0, 0, 0]),
    "index_put a mask": lambda x, y, i, j: x.index_put((y != 0,), y[1, 1, 1]),
    "index_put a mask of rows": lambda x, y, i, j: x.index_put((y[:, 0, 0] == y[:, 0, 0],), y),
    "index_select": lambda x, y, i, j: x.index_select(1, j),
    "index_select last": lambda x, y, i, j: x.index_select(-1, i),
    "index_copy": lambda x, y, i, j: x.index_copy(2, torch.tensor([0, 2, 4]), y[:, :, :3]),
    "index_fill": lambda x, y, i, j: x.index_fill(1, j, 1),
    "gather": lambda x, y, i, j: x.gather(1, (j[:, None] + i[None, :3])[None].expand(2, 4, 3) % 5),
    "gather expanded": lambda x, y, i, j: x.gather(0, i[:, None, None].expand(4, 5, 6)),
    "scatter": lambda x, y, i, j: x.scatter(2, j.expand(4, 5, 4), y),
    "scatter a value": lambda x, y, i, j: x.scatter(0, i[:3, None, None].expand(3, 2, 1), 1),
    "take": lambda x, y, i, j: x.contiguous().take(torch.stack([i, -i - 1])),
    "embedding": lambda x, y, i, j: aten.embedding(x[0], j.view(2, 2)),
    "masked_scatter": lambda x, y, i, j: x.masked_scatter(y.bool()[:, :1], y.repeat(2, 2, 2)),
}


def _values(dtype: torch.dtype, *sizes: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(-9 if dtype.is_signed else 0, 9, sizes, generator=generator)
    return whole > 0 if dtype == torch.bool else whole.to(dtype)


def _layouts(dtype: torch.dtype, *sizes: int) -> list[torch.Tensor]:
    plain = _values(dtype, *sizes)
    turned = _values(dtype, *sizes[::-1], seed=1).permute(*reversed(range(len(sizes))))
    apart = _values(dtype, *[2 * size + 1 for size in sizes], seed=2)[tuple(slice(1, None, 2) for _ in sizes)]
    return [plain, turned, apart]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moves(dtype):
    moves = [move for name, move in MOVES.items() if name not in ABSENT.get(dtype, ())]
    for x in _layouts(dtype, 4, 5, 6):
        y = _values(dtype, 4, 5, 6, seed=3)
        graphs.compare(lambda x, y: [move(x, y) for move in moves], [x, y], rtol=0, atol=0)


@pytest.mark.parametrize("wide", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_indexes(dtype, wide):
    i, j = torch.tensor([3, 0, 2, 2], dtype=wide), torch.tensor([0, 4, 1, 3], dtype=wide)
    reads = [read for name, read in INDEXES.items() if wide == torch.int64 or name not in LONG_ONLY]
    for x in _layouts(dtype, 4, 5, 6):
        y = _values(dtype, 4, 5, 6, seed=3)
        graphs.compare(lambda x, y, i, j: [read(x, y, i, j) for read in reads], [x, y, i, j], rtol=0, atol=0)


def test_gather_with_a_narrow_index_that_is_expanded(engine):
    """torch 2.13 itself reads such an index wrongly; the rows are the oracle."""
    x, i = torch.randn(4, 5, 6), torch.tensor([3, 0, 2, 2, 1, 3], dtype=torch.int32)
    compiled = engine.compile(lambda x, i: x.gather(0, i[:, None, None].expand(6, 5, 6)))
    assert torch.equal(compiled(x, i), x[i.long()])
    assert engine.host() == {}


def test_negative_indexes_count_from_the_end(engine):
    def f(x, i):
        return x[i], x[:, i], x.index_put((i,), x[0]), x.index_fill(0, i, 3.0)

    engine.check(f, torch.randn(4, 5), torch.tensor([-1, 0, -4]), exact=True)


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("index", lambda x, i: x[i]),
        ("index_put", lambda x, i: x.index_put((i,), x[0])),
        ("index_select", lambda x, i: x.index_select(0, i)),
        ("embedding", lambda x, i: F.embedding(i, x)),
        ("gather", lambda x, i: x.gather(0, i[:, None])),
        ("scatter", lambda x, i: x.scatter(0, i[:, None], 1.0)),
        ("scatter_add", lambda x, i: x.scatter_add(0, i[:, None], x)),
        ("index_add", lambda x, i: x.index_add(0, i, x[:3])),
    ],
)
def test_an_index_that_is_wrong_names_node_and_size(engine, name, f):
    compiled = engine.compile(f)
    x = torch.randn(4, 5)
    torch.testing.assert_close(compiled(x, torch.tensor([1, 0, 3])), f(x, torch.tensor([1, 0, 3])))
    assert engine.host() == {}
    for wrong in (4, -5, 1 << 40):
        with pytest.raises((IndexError, RuntimeError), match=f"{name}.*index {wrong} .*dimension 0 .*size 4"):
            compiled(x, torch.tensor([1, wrong, 3]))
    torch.testing.assert_close(compiled(x, torch.tensor([2, 2, 2])), f(x, torch.tensor([2, 2, 2])))


def test_zero_sizes(engine):
    def f(x, i, e):
        return (
            torch.cat([e, e], 1), e.repeat(2, 3), e.flip(1), F.pad(e, (1, 1, 2, 0)), x[i], x.index_select(0, i),
            x.gather(0, i[:, None].expand(0, 3)), x.scatter_add(0, i[:, None].expand(0, 3), x), F.embedding(i, x),
            x.index_put((i,), x[:0]), x.index_add(0, i, x[:0]), e.tril(), x.repeat(0, 1),
        )  # fmt: skip

    engine.check(f, torch.randn(4, 3), torch.empty(0, dtype=torch.int64), torch.empty(0, 5))


def test_zero_dimensions(engine):
    def f(x, i):
        return x.gather(0, i), x.scatter(0, i, 2.0), torch.stack([x, x]), x.index_fill(0, i, 1)

    engine.check(f, torch.tensor(3.0), torch.tensor(0), exact=True)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32,
torch.int64,
                                   torch.uint8], ids=str)
def test_scatter_reduce(dtype, reduce):
    x, source = _values(dtype, 6, 5, seed=1), _values(dtype, 9, 5, seed=2)
    index = torch.randint(0, 6, (9, 5), generator=torch.Generator().manual_seed(3))
    for dim, place in ((0, index), (1, index[:6] % 5), (0, index[:, :1].expand(9, 5)), (0, index[:4, :2])):
        for include_self in (True, False):
            graphs.compare(lambda x, i, s, dim=dim, own=include_self:
                           x.scatter_reduce(dim, i, s, reduce, include_self=own), [x, place, source])  # fmt: skip


def test_amax_keeps_nan():
    x, source = torch.tensor([1.0, float("nan"), 3.0]), torch.tensor([float("nan"), 5.0, 2.0])
    for reduce in ("amax", "amin"):
        graphs.compare(lambda x, i, s, how=reduce: x.scatter_reduce(0, i, s, how), [x, torch.arange(3), source])


def test_adding_meets_in_order():
    """Many additions to few places: against exact sums, and the same bits for any number of threads."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(5000, 37, generator=generator)
    index = torch.randint(0, 11, (5000,), generator=generator)
    exact = torch.zeros(11, 37, dtype=torch.float64).index_add(0, index, rows.double())

    def f(rows, index):
        zero = rows.new_zeros(11, 37)
        wide = index[:, None].expand(5000, 37)
        return (
            zero.index_add(0, index, rows), zero.index_put((index,), rows, accumulate=True),
            zero.scatter_add(0, wide, rows),
            zero.scatter_reduce(0, wide, rows, "sum"), aten.embedding_dense_backward(rows, index, 11, -1, False),
        )  # fmt: skip

    from torch.fx.experimental.proxy_tensor import make_fx

    from tensortap._engine import backend

    traced = make_fx(f, tracing_mode="fake")(rows, index)
    run = backend.compile_graph(traced, [rows, index])
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(run([rows, index]))
    finally:
        torch.set_num_threads(threads)
    for result in results[0]:
        torch.testing.assert_close(result, exact.float(), rtol=1e-5, atol=1e-4)
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            assert torch.equal(one, other)


def test_the_last_of_two_writes_wins():
    """One place named often: as if written in order, whatever the threads do."""
    index = torch.arange(4000) % 7
    rows = torch.arange(4000.0)[:, None].expand(4000, 65).contiguous()
    expected = torch.stack([rows[index == place][-1] for place in range(7)])
    compiled = torch.compile(
        lambda x, i, r: (x.index_put((i,), r), x.index_copy(0, i, r), x.scatter(0, i[:, None].expand(4000, 65), r)),
        backend="tensortap",
    )
    for result in compiled(torch.zeros(7, 65), index, rows):
        assert torch.equal(result, expected)


def test_padding_rows_get_no_gradient(engine):
    def f(weight, index):
        return F.embedding(index, weight, padding_idx=2).square().sum()

    engine.check(f, torch.randn(5, 8, requires_grad=True), torch.tensor([[0, 2, 4], [2, 2, 1]]), backward=True)


def test_gradients(engine):
    def f(x, y, i):
        return (
            torch.cat([x, y]), x.roll(1, 0), F.pad(x, (1, 1), "reflect"), F.pad(x, (2, 1), "replicate"), x[i], x.tril(),
            x.gather(0, i[:, None]), x.index_select(1, i), x.scatter_add(0, i[:, None].expand(3, 4), y[:3]),
            x.repeat(2, 2),
            x.index_add(0, i, y[:3]), x.index_put((i,), y[0], accumulate=True), x.flip(1), F.pad(x, (1, 2, 3, 1)),
        )  # fmt: skip

    x, y = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    engine.check(f, x, y, torch.tensor([2, 0, 2]), backward=True)


def test_folding_back(engine):
    def f(x):
        return F.fold(F.unfold(x, (3, 2), dilation=(1, 2), padding=1, stride=2), (9, 8), (3, 2), (1, 2), 1, 2)

    engine.check(f, torch.randn(2, 3, 9, 8, requires_grad=True), backward=True, strides=False)


def test_sizes_that_change(engine):
    def f(x, i):
        n = x.shape[0]
        padded = F.pad(x[None], (2, 3), "circular")
        return torch.cat([x, x[:1]], 0), x[i], padded, x.new_full((n, 2), n), torch.arange(n) * 2, x.roll(n - 1, 0)

    compiled = engine.compile(f, dynamic=True)
    for rows in (3, 5, 8):
        x, i = torch.randn(rows, 4), torch.arange(rows - 1)
        torch.testing.assert_close(compiled(x, i), f(x, i), rtol=0, atol=0)
    assert tensortap.counters()["graphs"] == 1 and engine.host() == {}


def test_large_moves_are_whole():
    """Sizes at which work is cut into units and tiles, and the odd rest of each."""
    x = torch.arange(517 * 1031, dtype=torch.int32).view(517, 1031)

    def f(x):
        turned = x.t()
        return (
            torch.cat([turned, turned], 1), turned.flip(0), torch.stack([x, x], 2), x.repeat(1, 2),
            x.roll((100, 3), (0, 1)),
            F.pad(turned, (3, 5, 1, 2)), turned.tril(7), x.index_select(1, torch.arange(1030, -1, -3)),
        )  # fmt: skip

    graphs.compare(f, [x], rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(engine, mode):
    weight = torch.randn(10, 4, requires_grad=True)
    indices = torch.tensor([1, 3, 3, 7, 2, 9, 9, 0, 5])
    offsets = torch.tensor([0, 2, 2, 6, 9])

    def run(weight, indices, offsets):
        bag = torch.nn.functional.embedding_bag
        rows = [
            bag(indices, weight, offsets, mode=mode),
            bag(indices, weight, offsets, mode=mode, include_last_offset=True),
            bag(indices.view(3, 3), weight, mode=mode),
            bag(indices.int(), weight, offsets.int(), mode=mode),
        ]
        if mode != "max":
            rows.append(bag(indices, weight, offsets, mode=mode, padding_idx=3))
        return rows

    engine.check(run, weight, indices, offsets, backward=True, strides=False)
    engine.check(run, weight.detach(), indices, offsets, dynamic=True, strides=False)
    engine.check(run, weight.detach().bfloat16(), indices, offsets, strides=False)


def test_weighted_embedding_bag(engine):
    weight, scale = torch.randn(6, 3, requires_grad=True), torch.rand(5)

    def run(weight, indices, offsets, scale):
        return torch.nn.functional.embedding_bag(indices, weight, offsets, mode="sum", per_sample_weights=scale)

    engine.check(run, weight, torch.tensor([0, 5, 2, 2, 1]), torch.tensor([0, 3]), scale, backward=True, strides=False)

    def by_frequency(weight, indices, offsets):
        return torch.nn.functional.embedding_bag(indices, weight, offsets, scale_grad_by_freq=True)

    args = weight, torch.tensor([0, 5, 2, 2, 1]), torch.tensor([0, 3])
    engine.check(by_frequency, *args, backward=True, strides=False, native=False)


def test_as_strided_scatter(engine):
    def run(x, y):
        return torch.as_strided_scatter(x, y, (2, 3), (1, 2)), torch.as_strided_scatter(x, y, (2, 3), (4, 1), 1)

    engine.check(run, torch.randn(3, 4), torch.randn(2, 3))
