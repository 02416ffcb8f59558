"""Softmax, norms and losses of the engine against eager, over dtypes, layouts and options."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tensortap
import torch
import torch.nn.functional as F
from torch import nn

from graphs import compare

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
A = torch.ops.aten


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 5) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def layout(x: torch.Tensor, how: str) -> torch.Tensor:
    if how == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "gaps":
        return torch.stack([x, x + 1], -1)[..., 0]
    return x


LAYOUTS = ["contiguous", "transposed", "gaps"]


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_softmax(dtype: torch.dtype, how: str) -> None:
    def run(*args: torch.Tensor) -> list[Any]:
        out = []
        for x, g, y, z in zip(*[iter(args)] * 4, strict=True):
            for axis in range(-x.dim(), x.dim()) or [0]:
                out += [A._softmax(x, axis, False), A._log_softmax(x, axis, False), A._safe_softmax(x, axis)]
                out += [A._softmax_backward_data(g, y, axis, x.dtype), A._log_softmax_backward_data(g, z, axis, x.dtype)]
        return out

    args = []
    for shape in [(), (1,), (5,), (3, 0), (0, 3), (33, 130), (3, 2500), (2500, 3), (2, 3, 5, 7)]:
        x, g = numbers(*shape, dtype=dtype) * 3, numbers(*shape, dtype=dtype, seed=6)
        args += [layout(t, how) if len(shape) > 1 else t for t in (x, g, torch.rand(shape).to(dtype), -torch.rand(shape).to(dtype))]
    compare(run, args)


def test_softmax_of_unusual_values(engine: Any) -> None:
    x = numbers(6, 40)
    x[0] = -math.inf
    x[1, 3] = math.inf
    x[2, 5] = math.nan
    x[3, ::2] = -math.inf
    x[4] = 1e4
    x[5, 7] = 200.0

    def run(x: torch.Tensor) -> list[Any]:
        return [f(x, axis) for axis in (0, 1) for f in (torch.softmax, torch.log_softmax, A._safe_softmax)]

    engine.check(run, x)
    engine.check(run, x.double())


def test_softmax_to_float() -> None:
    x = numbers(40, 50, dtype=torch.bfloat16)
    compare(lambda x: [torch.softmax(x, 1, dtype=torch.float32), torch.log_softmax(x, 0, dtype=torch.float32)], [x], native=False)


def parameters(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return numbers(*shape, dtype=dtype, seed=8), numbers(*shape, dtype=dtype, seed=9)


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layer_norm(dtype: torch.dtype, how: str) -> None:
    for shape in [(33, 130), (4, 6, 50), (3, 9000), (2, 3, 5, 7), (0, 4)]:
        x, g = layout(numbers(*shape, dtype=dtype), how), layout(numbers(*shape, dtype=dtype, seed=6), how)
        for last in (1, 2):
            size = list(shape[-last:])
            w, b = parameters(tuple(size), dtype)
            m, r = torch.native_layer_norm(x, size, None, None, 1e-5)[1:]

            def run(x: Any, g: Any, w: Any, b: Any, m: Any, r: Any, size: Any = size) -> list[Any]:
                out = [*A.native_layer_norm(x, size, w, b, 1e-5), *A.native_layer_norm(x, size, None, None, 1e-5)]
                out += [A.native_layer_norm(x, size, w, None, 1e-5)[0]]
                if x.numel():
                    out += A.native_layer_norm_backward(g, x, size, m, r, w, b, [True, True, True])
                    out += A.native_layer_norm_backward(g, x, size, m, r, None, None, [True, False, False])[:1]
                    out += A.native_layer_norm_backward(g, x, size, m, r, w, b, [False, True, True])[1:]
                return out

            # float16 and bfloat16 sums over rows are rounded by eager on the way
            compare(run, [x, g, w, b, m, r], native=x.numel() > 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rms_norm(dtype: torch.dtype) -> None:
    x, g, w = numbers(7, 9, 130, dtype=dtype), numbers(7, 9, 130, dtype=dtype, seed=6), numbers(130, dtype=dtype, seed=8)
    compare(lambda x, w: [F.rms_norm(x, [130], w), F.rms_norm(x, [130], None, 1e-3)], [x, w], native=False)
    # the gradient has no kernel on the CPU: against the formula in float64
    from tensortap._engine import backend

    graph = torch.fx.Graph()
    inputs = {name: graph.placeholder(name) for name in ("g", "x", "r", "w")}
    d = x.double()
    r = torch.rsqrt(d.square().mean(-1, keepdim=True) + 1e-5).to(dtype)
    for name, value in zip("gxrw", (g, x, r, w), strict=True):
        inputs[name].meta["val"] = value
    call = graph.call_function(A._fused_rms_norm_backward.default, (inputs["g"], inputs["x"], [130], inputs["r"], inputs["w"], [True, True]))
    call.meta["val"] = (x, w)
    import operator

    items = [graph.call_function(operator.getitem, (call, k)) for k in range(2)]
    for item, value in zip(items, (x, w), strict=True):
        item.meta["val"] = value
    graph.output(tuple(items))
    tensortap.counters(reset=True)
    dx, dw = backend.compile_graph(torch.fx.GraphModule({}, graph), [g, x, r, w])([g, x, r, w])
    assert backend.host_targets() == {}
    gw, rd = g.double() * w.double(), r.double()
    expected = rd * (gw - d * rd * rd * (gw * d).mean(-1, keepdim=True))
    torch.testing.assert_close(dx, expected.to(dtype))
    torch.testing.assert_close(dw, (g.double() * d * rd).sum((0, 1)).to(dtype))


@pytest.mark.parametrize("how", ["contiguous", "transposed", "gaps", "channels_last"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_batch_norm(dtype: torch.dtype, how: str) -> None:
    for shape in [(4, 6, 50), (40, 33), (2, 3, 5, 7), (3, 700), (8, 2, 40, 40)]:
        x, g = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=6)
        if how == "channels_last":
            if len(shape) != 4:
                continue
            x, g = (t.contiguous(memory_format=torch.channels_last) for t in (x, g))
        x, g = layout(x, how), layout(g, how)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        w, b = parameters((shape[1],), wide)
        mean, var = numbers(shape[1], dtype=wide), torch.rand(shape[1]).to(wide) + 0.5
        half = dtype in (torch.float16, torch.bfloat16)

        def run(x: Any, g: Any, w: Any, b: Any, mean: Any, var: Any, half: bool = half) -> list[Any]:
            out = []
            for weight, bias in ((w, b), (None, None)):
                mask = [True, weight is not None, bias is not None]
                if half and weight is None:
                    continue
                y, m, r, *new = A._native_batch_norm_legit_functional(x, weight, bias, mean, var, True, 0.1, 1e-5)
                # traces of float16 and bfloat16 disagree with eager about the dtype of saved statistics
                out += [y, *new] if half else [y, m, r, *new]
                out += [A._native_batch_norm_legit_no_training(x, weight, bias, mean, var, 0.1, 1e-5)[0]]
                out += [A._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-5)[0]]
                for train in (True, False):
                    given = (mean, var.rsqrt()) if half else (m, r)
                    grads = A.native_batch_norm_backward(g, x, weight, mean, var, *given, train, 1e-5, mask)
                    out += [t for t in grads if t is not None]
            return out

        tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
        compare(run, [x, g, w, b, mean, var], native=False, **tolerance)
        from tensortap._engine import backend

        assert not {t for t in backend.host_targets() if "batch_norm" in t}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_group_norm(dtype: torch.dtype) -> None:
    for shape, groups in [((4, 6, 50), 2), ((2, 8, 5, 7), 8), ((3, 4, 30, 40), 1), ((5, 4), 2)]:
        x, g = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=6)
        w, b = parameters((shape[1],), dtype)
        places = math.prod(shape[2:])
        m, r = A.native_group_norm(x, None, None, shape[0], shape[1], places, groups, 1e-5)[1:]

        def run(x: Any, g: Any, w: Any, b: Any, m: Any, r: Any, shape: Any = shape, groups: int = groups, places: int = places) -> list[Any]:
            out = [*A.native_group_norm(x, w, b, shape[0], shape[1], places, groups, 1e-5)]
            out += A.native_group_norm(x, None, None, shape[0], shape[1], places, groups, 1e-5)
            out += A.native_group_norm_backward(g, x, m, r, w, shape[0], shape[1], places, groups, [True, True, True])
            out += A.native_group_norm_backward(g, x, m, r, None, shape[0], shape[1], places, groups, [True, False, False])[:1]
            return out

        tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
        compare(run, [x, g, w, b, m, r], **tolerance)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses(reduction: int, dtype: torch.dtype) -> None:
    def run(x: Any, t: Any, p: Any, q: Any, w: Any, c: Any, g: Any) -> list[Any]:
        out = [A.mse_loss(x, t, reduction), A.mse_loss(x, t[:1], reduction)]
        out += [A.smooth_l1_loss(x, t, reduction, beta) for beta in (1.0, 0.3)]
        out += [A.huber_loss(x, t, reduction, delta) for delta in (1.0, 0.3)]
        out += [A.binary_cross_entropy(p, q, None, reduction), A.binary_cross_entropy(p, q, w, reduction)]
        out += [A.binary_cross_entropy_with_logits(x, q, None, None, reduction), A.binary_cross_entropy_with_logits(x, q, w, c, reduction)]
        if x.numel() == 0:
            return out
        out += [A.mse_loss_backward(g, x, t, reduction), A.smooth_l1_loss_backward(g, x, t, reduction, 0.3)]
        out += [A.huber_loss_backward(g, x, t, reduction, 0.3), A.binary_cross_entropy_backward(g, p, q, w, reduction)]
        return out

    for shape in [(), (7,), (50, 70), (0, 3), (4, 5, 6), (130, 260)]:
        for how in LAYOUTS if len(shape) > 1 else LAYOUTS[:1]:
            x, t = layout(numbers(*shape, dtype=dtype), how), layout(numbers(*shape, dtype=dtype, seed=6), how)
            p, q = (layout(torch.rand(shape, generator=torch.Generator().manual_seed(s)).to(dtype) * 0.9 + 0.05, how) for s in (1, 2))
            w, c = layout(torch.rand(shape).to(dtype), how), torch.rand(shape[-1:]).to(dtype) + 0.5
            g = layout(numbers(*shape, dtype=dtype, seed=12), how) if reduction == 0 else numbers(dtype=dtype, seed=12)
            if not shape:
                t = t.reshape(1)[0]
                compare(lambda x, t, g: [A.mse_loss(x, t, reduction), A.huber_loss(x, t, reduction, 1.0), A.mse_loss_backward(g, x, t, reduction)], [x, t, g])
                continue
            compare(run, [x, t, p, q, w, c, g])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss(reduction: int, dtype: torch.dtype) -> None:
    def run(x: Any, t: Any, w: Any, g: Any) -> list[Any]:
        forward, backward = (A.nll_loss_forward, A.nll_loss_backward) if x.dim() < 4 else (A.nll_loss2d_forward, A.nll_loss2d_backward)
        out = []
        for weight, ignored in ((None, -100), (w, 2), (w, -100)):
            y, total = forward(x, t, weight, reduction, ignored)
            out += [y, total]
            if contiguous:  # all that eager accepts
                out += [backward(g, x, t, weight, reduction, ignored, total)]
        return out

    for shape in [(5,), (40, 10), (3, 5, 4, 6), (1, 7), (9000, 4)]:
        for how in LAYOUTS if len(shape) > 1 else LAYOUTS[:1]:
            x = layout(numbers(*shape, dtype=dtype).log_softmax(0 if len(shape) == 1 else 1), how)
            classes = shape[0] if len(shape) == 1 else shape[1]
            places = () if len(shape) == 1 else (shape[0], *shape[2:])
            t = torch.randint(0, classes, places, generator=torch.Generator().manual_seed(3))
            g = numbers(*places, dtype=dtype) if reduction == 0 else numbers(dtype=dtype)
            contiguous = x.is_contiguous()  # of the copy in float64 too, whatever its layout
            compare(run, [x, t, numbers(classes, dtype=dtype).abs() + 0.1, g])


def test_a_target_out_of_bounds(engine: Any) -> None:
    compiled = engine.compile(lambda x, t: F.nll_loss(x, t))
    with pytest.raises(Exception, match="Target 9 is out of bounds"):
        compiled(torch.randn(4, 3), torch.tensor([0, 1, 9, 2]))


MODULES = {
    "layer_norm": (lambda: nn.LayerNorm(24), (6, 5, 24)),
    "layer_norm_2": (lambda: nn.LayerNorm([5, 24], elementwise_affine=False), (6, 5, 24)),
    "group_norm": (lambda: nn.GroupNorm(3, 6), (4, 6, 8, 9)),
    "batch_norm": (lambda: nn.BatchNorm2d(6), (4, 6, 8, 9)),
    "batch_norm_1d": (lambda: nn.BatchNorm1d(24), (30, 24)),
    "batch_norm_eval": (lambda: nn.BatchNorm2d(6).eval(), (4, 6, 8, 9)),
    "instance_norm": (lambda: nn.InstanceNorm2d(6, affine=True), (4, 6, 8, 9)),
    "softmax": (lambda: nn.Softmax(1), (4, 6, 8)),
    "log_softmax": (lambda: nn.LogSoftmax(-1), (4, 6, 8)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_modules_train(engine: Any, name: str, dynamic: bool) -> None:
    make, shape = MODULES[name]
    theirs, ours = make(), make()
    ours.load_state_dict(theirs.state_dict())
    compiled = engine.compile(ours, dynamic=dynamic)
    for step in range(3):
        sizes = (shape[0] + step, *shape[1:]) if dynamic else shape
        x, y = (numbers(*sizes, seed=step).requires_grad_() for _ in range(2))
        expected, actual = theirs(x), compiled(y)
        torch.testing.assert_close(actual, expected)
        cotangent = numbers(*sizes, seed=20 + step)
        expected.backward(cotangent)
        actual.backward(cotangent)
        torch.testing.assert_close(y.grad, x.grad, rtol=1e-4, atol=1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    assert not {t for t in engine.host() if "norm" in t or "softmax" in t}, engine.host()


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1), nn.CrossEntropyLoss(reduction="sum")],
    ids=["mean", "smoothing", "sum"],
)
def test_cross_entropy_trains(engine: Any, loss: nn.Module) -> None:
    x = numbers(20, 11).requires_grad_()
    engine.check(lambda x, t: loss(x, t), x, torch.randint(0, 11, (20,)), backward=True, native=False)
    assert not {t for t in engine.host() if "nll" in t or "softmax" in t}, engine.host()
