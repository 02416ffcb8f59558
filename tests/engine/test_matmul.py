"""Matrix products through the engine: layouts, types, sizes of zero, dynamic sizes, gradients; errors against float64."""

import itertools

import pytest
import torch

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
NUMBERS = [*FLOATS, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def make(shape, dtype, layout="dense"):
    if layout == "transposed":
        return make([*shape[:-2], shape[-1], shape[-2]], dtype).transpose(-1, -2)
    if layout == "strided":
        return make([2 * size for size in shape], dtype)[tuple(slice(None, None, 2) for _ in shape)]
    if layout == "padded":
        return make([*shape[:-1], shape[-1] + 3], dtype)[..., : shape[-1]]
    if layout == "expanded":
        return make([1] * len(shape), dtype).expand(shape)
    if dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.float64).to(dtype)
    return torch.randint(0, 100, shape, dtype=dtype)


def close(engine, function, *args):
    """Natively run, and at most twice as far from the float64 result as eager is; integers exactly."""
    compiled = engine.compile(function)
    actual, eager = compiled(*args), function(*args)
    assert engine.host() == {}
    assert actual.shape == eager.shape and actual.stride() == eager.stride() and actual.dtype == eager.dtype
    if not (eager.is_floating_point() or eager.is_complex()):
        assert torch.equal(actual, eager)
        return
    wide = torch.complex128 if eager.is_complex() else torch.float64
    exact = function(*(arg.to(wide) for arg in args))
    if exact.numel() == 0:
        return
    few = 1 if eager.dtype in (torch.float16, torch.bfloat16) else 16
    slack = few * torch.finfo(eager.dtype).eps * exact.abs().max().item()
    assert not actual.isnan().any()
    assert (actual - exact).abs().max() <= 2 * (eager - exact).abs().max() + slack


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("sizes", [(5, 7, 9), (64, 33, 48), (1, 17, 5), (6, 17, 1), (3, 0, 4), (0, 3, 4)], ids=str)
def test_mm(engine, dtype, sizes):
    m, k, n = sizes
    close(engine, torch.mm, make([m, k], dtype), make([k, n], dtype))


LAYOUTS = ["dense", "transposed", "strided", "padded", "expanded"]


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, repeat=2)), ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_layouts_of_the_factors(engine, layouts, dtype):
    close(engine, torch.mm, make([12, 20], dtype, layouts[0]), make([20, 9], dtype, layouts[1]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes", [(3, 5, 7, 9), (4, 1, 17, 5), (0, 2, 3, 4), (2, 3, 0, 4), (5, 4, 6, 1)], ids=str)
@pytest.mark.parametrize("layout", ["dense", "transposed", "expanded"])
def test_bmm(engine, dtype, sizes, layout):
    b, m, k, n = sizes
    close(engine, torch.bmm, make([b, m, k], dtype, layout), make([b, k, n], dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [[6, 9], [9], [1, 9], [6, 1], [1]], ids=str)
@pytest.mark.parametrize("factors", [(1, 1), (2, 3), (1, 0), (0, 2)], ids=str)
def test_addmm(engine, dtype, shape, factors):
    alpha, beta = factors
    close(engine, lambda d, a, b: torch.addmm(d, a, b, beta=beta, alpha=alpha), make(shape, dtype),
          make([6, 7], dtype), make([7, 9], dtype, "transposed"))


def test_nothing_to_multiply_leaves_the_addend(engine):
    close(engine, lambda d, a, b: torch.addmm(d, a, b, beta=3), make([4], torch.float32), torch.empty(3, 0),
          torch.empty(0, 4))


def test_beta_zero_does_not_look_at_the_addend(engine):
    nan = torch.full((3, 4), float("nan"))
    engine.check(lambda d, a, b: torch.addmm(d, a, b, beta=0), nan, torch.randn(3, 5), torch.randn(5, 4))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_vectors(engine, dtype):
    matrix, vector = make([70, 90], dtype), make([90], dtype)
    close(engine, torch.mv, matrix, vector)
    close(engine, torch.mv, make([70, 90], dtype, "transposed"), vector)
    close(engine, lambda d, a, v: torch.addmv(d, a, v, beta=2, alpha=3), make([70], dtype), matrix, vector)
    close(engine, torch.dot, make([50000], dtype), make([50000], dtype))
    close(engine, torch.baddbmm, make([2, 5, 6], dtype), make([2, 5, 4], dtype), make([2, 4, 6], dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_linear_with_gradients(engine, dtype):
    args = [make(shape, dtype).requires_grad_() for shape in ([4, 5, 8], [6, 8], [6])]
    engine.check(torch.nn.functional.linear, *args, backward=True)


def test_dynamic_sizes(engine):
    compiled = engine.compile(lambda x, w: x @ w, dynamic=True)
    weight = torch.randn(8, 16)
    for rows in (3, 7, 64, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x, weight), x @ weight)
    assert engine.host() == {}
