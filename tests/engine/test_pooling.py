"""Pooling and resampling, forward and backward, in both memory formats."""

from __future__ import annotations

from collections.abc import Callable

import graphs
import pytest
import torch

F = torch.nn.functional
aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
FORMATS = [torch.contiguous_format, torch.channels_last]


def _image(dtype: torch.dtype, memory_format: torch.memory_format, *sizes: int) -> torch.Tensor:
    torch.manual_seed(3)
    return torch.randn(sizes, dtype=torch.float64).to(dtype).contiguous(memory_format=memory_format)


POOLS: dict[str, Callable[[torch.Tensor], object]] = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max that overlaps": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max with holes": lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (2, 3), ceil_mode=True),
    "average": lambda x: F.avg_pool2d(x, 2),
    "average with border": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average without border": lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 0), True, False),
    "average by a number": lambda x: F.avg_pool2d(x, 3, 1, 1, divisor_override=5),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (5, 4)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (4, 7), return_indices=True),
}
RESAMPLED: dict[str, Callable[[torch.Tensor], object]] = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest odd": lambda x: F.interpolate(x, (7, 23)),
    "nearest exact": lambda x: F.interpolate(x, (17, 5), mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bilinear smaller": lambda x: F.interpolate(x, (5, 6), mode="bilinear"),
    "bilinear corners": lambda x: F.interpolate(x, (19, 4), mode="bilinear", align_corners=True),
    "bilinear scaled": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=False),
    "bicubic": lambda x: F.interpolate(x, (20, 9), mode="bicubic"),
    "bicubic corners": lambda x: F.interpolate(x, (9, 21), mode="bicubic", align_corners=True),
}


@pytest.mark.parametrize("memory_format", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_pools(dtype, memory_format):
    for sizes in ((2, 3, 11, 13), (1, 70, 9, 8)):
        x = _image(dtype, memory_format, *sizes)
        graphs.compare(lambda x: [pool(x) for pool in POOLS.values()], [x])


@pytest.mark.parametrize("memory_format", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_resampling(dtype, memory_format):
    for sizes in ((2, 3, 11, 13), (1, 70, 9, 8)):
        x = _image(dtype, memory_format, *sizes)
        graphs.compare(lambda x: [resample(x) for resample in RESAMPLED.values()], [x])


def test_halves_are_interpolated_by_torch():
    """It rounds every step of such a sum, which the engine does not imitate."""
    x = _image(torch.bfloat16, torch.contiguous_format, 1, 2, 4, 4)
    graphs.compare(RESAMPLED["bilinear"], [x], native=False)
    graphs.compare(RESAMPLED["nearest"], [x], rtol=0, atol=0)


def test_one_and_three_dimensions():
    def f(x, y):
        return [
            F.avg_pool1d(x, 3, 2, 1), F.max_pool1d(x, 3, 2, 1), F.adaptive_avg_pool1d(x, 4),
            F.adaptive_max_pool1d(x, 5),
            F.interpolate(x, 19), F.interpolate(x, 17, mode="linear"), F.max_pool3d(y, 2), F.avg_pool3d(y, (2,
            3, 2), 1, 1),
            F.adaptive_avg_pool3d(y, (2, 3, 4)), F.interpolate(y, (7, 3, 9)), F.interpolate(y, (3, 9, 5),
            mode="trilinear"),
        ]  # fmt: skip

    graphs.compare(f, [torch.randn(2, 3, 12), torch.randn(2, 3, 5, 6, 7)])


def test_images_without_a_batch_and_odd_layouts():
    x = torch.randn(3, 12, 10)
    graphs.compare(lambda x: [pool(x) for pool in POOLS.values()], [x])
    graphs.compare(lambda x: [pool(x) for pool in POOLS.values()], [torch.randn(2, 24, 10, 3)[:,
        ::2].permute(0, 3, 1, 2)])


def test_nan_is_the_largest():
    x = torch.randn(1, 2, 6, 6)
    x[0, 0, 2, 3] = float("nan")
    x[0, 1] = -float("inf")
    graphs.compare(lambda x: [POOLS["max"](x), POOLS["max that overlaps"](x), POOLS["adaptive max"](x)], [x])


def test_empty_batches():
    def f(x):
        return [F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 3)]

    graphs.compare(f, [torch.randn(0, 3, 8, 8)])


@pytest.mark.parametrize("memory_format", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients(engine, dtype, memory_format):
    pools = [pool for name, pool in POOLS.items() if "max" not in name]

    def f(x):
        largest = [F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.adaptive_max_pool2d(x, (4, 7))]
        return [*largest, *(pool(x) for pool in pools), F.interpolate(x, scale_factor=2), F.interpolate(x, (7, 23))]

    x = _image(dtype, memory_format, 2, 5, 11, 13).requires_grad_()
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    engine.check(f, x, backward=True, **tolerance)


def test_gradients_of_resampling(engine):
    def f(x):
        return [resample(x) for resample in RESAMPLED.values()]

    engine.check(f, torch.randn(2, 3, 11, 13, requires_grad=True), backward=True, rtol=1e-5, atol=1e-5)


def test_indices_that_point_out_of_the_image(engine):
    def f(grad, x, indices):
        return aten.max_pool2d_with_indices_backward(grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)

    x, grad, indices = torch.randn(1, 1, 4, 4), torch.randn(1, 1, 2, 2), torch.tensor([[[[0, 3], [8, 15]]]])
    compiled = engine.compile(f)
    torch.testing.assert_close(compiled(grad, x, indices), f(grad, x, indices))
    for wrong in (16, -1):
        with pytest.raises((IndexError, RuntimeError), match=f"index {wrong} "):
            compiled(grad, x, indices.clone().fill_(wrong))
    assert engine.host() == {}


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [("bilinear", torch.float32), ("nearest", torch.float32), ("bicubic", torch.float32), ("bilinear", torch.float64)],
)
def test_grid_sample(engine, mode, dtype):
    """Every padding, places inside and far outside, images and grids of other strides."""
    x = torch.randn(2, 5, 6, 3, dtype=dtype).permute(0, 3, 1, 2).requires_grad_()
    grid = ((torch.rand(2, 4, 5, 2, dtype=dtype) - 0.5) * 4).requires_grad_()

    def run(x, grid):
        return [
            torch.nn.functional.grid_sample(x, grid, mode, padding, align_corners=align)
            for padding in ("zeros", "border", "reflection")
            for align in (False, True)
        ]

    engine.check(run, x, grid, backward=True, strides=False, native=True)


def test_grid_sample_of_one_pixel_and_of_nothing(engine):
    def run(x, grid):
        return torch.nn.functional.grid_sample(x, grid, padding_mode="reflection", align_corners=True)

    engine.check(run, torch.randn(2, 3, 1, 1), torch.rand(2, 3, 4, 2) * 2 - 1, dynamic=True)
    engine.check(run, torch.randn(0, 3, 4, 4), torch.randn(0, 2, 2, 2))
    engine.check(run, torch.randn(1, 2, 3, 4), torch.zeros(1, 0, 2, 2))
    engine.compile(run)(torch.randn(1, 2, 3, 4), torch.tensor([float("inf"), float("nan"), -1e30, 1e30]).reshape(1, 1, 2, 2))
