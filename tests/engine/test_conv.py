"""Convolutions through the engine: dimensions, transposed, groups, layouts, gradients; errors against float64."""

import pytest
import torch

HALVES = [torch.float32, torch.bfloat16, torch.float16]
# kernel, stride, padding, dilation, groups, channels in and out
WINDOWS = [(3, 1, 1, 1, 1, 3, 5), (2, 2, 0, 1, 1, 16, 32), (3, 2, 1, 2, 2, 4, 6), (1, 1, 0, 1, 1, 8, 8),
           (3, 1, 1, 1, 8, 8, 8)]
IMAGES = {1: [17], 2: [9, 11], 3: [5, 6, 7]}


def near(actual, eager, exact):
    slack = (8 if eager.dtype == torch.float32 else 1) * torch.finfo(eager.dtype).eps * exact.abs().max().item()
    assert actual.shape == eager.shape and actual.dtype == eager.dtype and not actual.isnan().any()
    assert (actual - exact).abs().max() <= 2 * (eager - exact).abs().max() + slack


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolution_and_gradients(engine, dims, transposed, window, dtype):
    kernel, stride, padding, dilation, groups, inside, outside = window
    x = torch.randn([2, inside, *IMAGES[dims]]).to(dtype).requires_grad_()
    sizes = [inside, outside // groups] if transposed else [outside, inside // groups]
    weight = torch.randn([*sizes, *[kernel] * dims]).to(dtype).requires_grad_()
    bias = torch.randn(outside).to(dtype).requires_grad_()
    how = ([stride] * dims, [padding] * dims, [dilation] * dims, transposed, [0] * dims, groups)

    def function(*args):
        return torch.convolution(*args, *how)

    compiled, args = engine.compile(function), (x, weight, bias)
    wide = [arg.detach().double().requires_grad_() for arg in args]
    actual, eager, exact = compiled(*args), function(*args), function(*wide)
    near(actual, eager, exact)
    cotangent = torch.randn_like(eager)
    found = torch.autograd.grad(actual, args, cotangent)
    for mine, theirs, true in zip(found, torch.autograd.grad(eager, args, cotangent),
                                  torch.autograd.grad(exact, wide, cotangent.double())):
        near(mine, theirs, true)
    assert engine.host() == {}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_channels_last(engine, dtype):
    module = torch.nn.Conv2d(16, 32, 3, padding=1).to(dtype).to(memory_format=torch.channels_last)
    x = torch.randn(2, 16, 12, 10).to(dtype).to(memory_format=torch.channels_last)
    actual = engine.compile(module)(x)
    near(actual, module(x), module.double()(x.double()))
    assert actual.is_contiguous(memory_format=torch.channels_last) and engine.host() == {}


def test_a_gradient_that_is_one_number_expanded(engine):
    module = torch.nn.Conv2d(3, 8, 3)
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    compiled = engine.compile(module)
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(module(x).sum(), x)[0])


def test_no_images(engine):
    engine.check(lambda x, w: torch.nn.functional.conv2d(x, w), torch.randn(0, 3, 8, 8), torch.randn(4, 3, 3, 3))


def test_dynamic_batch_and_image(engine):
    weight = torch.randn(4, 3, 3, 3)
    compiled = engine.compile(lambda x: torch.nn.functional.conv2d(x, weight, padding=1), dynamic=True)
    for batch, size in ((2, 8), (5, 11), (3, 9)):
        x = torch.randn(batch, 3, size, size + 1)
        torch.testing.assert_close(compiled(x), torch.nn.functional.conv2d(x, weight, padding=1))
    assert engine.host() == {}
