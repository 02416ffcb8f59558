"""Four small models whose every operation is tapped, and the faults that can be planted into them.

A fault takes the place of one operation in one of two runs; compare should name that operation first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import tensortap as tap
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Operation = Callable[..., Tensor]


class Model(nn.Module):
    """Runs named operations; `fault` stands in for one of them."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.fault_at = ""
        self.fault: Operation | None = None

    def op(self, name: str, operation: Operation, *values: Tensor) -> Tensor:
        out = self.fault(operation, *values) if self.fault is not None and name == self.fault_at else operation(*values)
        tap.save(out, name)
        return out

    def sample(self) -> Tensor:
        raise NotImplementedError


class Mlp(Model):
    """Linear layers, GELU and norms."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.a, self.b, self.c = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 8)
        self.norm = nn.LayerNorm(32)

    def sample(self) -> Tensor:
        return torch.randn(16, 32)

    def forward(self, x: Tensor) -> Tensor:
        h = self.op("linear_a", lambda v: F.linear(v, self.a.weight, self.a.bias), x)
        h = self.op("gelu_a", lambda v: F.gelu(v), h)
        h = self.op("norm_a", lambda v: F.layer_norm(v, (32,), self.norm.weight, self.norm.bias), h)
        h = self.op("linear_b", lambda v: F.linear(v, self.b.weight, self.b.bias), h)
        h = self.op("silu_b", lambda v: F.silu(v), h)
        h = self.op("linear_c", lambda v: F.linear(v, self.c.weight, self.c.bias), h)
        return self.op("softmax_c", lambda v: torch.softmax(v, -1), h)


class Attention(Model):
    """One block of causal attention with a residual."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
        self.norm = nn.LayerNorm(32)

    def sample(self) -> Tensor:
        return torch.randn(4, 12, 32)

    def forward(self, x: Tensor) -> Tensor:
        n = self.op("norm", lambda v: F.layer_norm(v, (32,), self.norm.weight, self.norm.bias), x)
        q = self.op("q", lambda v: F.linear(v, self.q.weight, self.q.bias), n)
        k = self.op("k", lambda v: F.linear(v, self.k.weight, self.k.bias), n)
        v = self.op("v", lambda v: F.linear(v, self.v.weight, self.v.bias), n)
        s = self.op("scores", lambda a, b: a @ b.transpose(-1, -2), q, k)
        s = self.op("scaled", lambda a: a / math.sqrt(32), s)
        mask = torch.ones(12, 12, dtype=torch.bool).triu(1)
        s = self.op("masked", lambda a: a.masked_fill(mask, -1e4), s)
        p = self.op("probs", lambda a: torch.softmax(a, -1), s)
        o = self.op("mixed", lambda a, b: a @ b, p, v)
        o = self.op("out", lambda a: F.linear(a, self.o.weight, self.o.bias), o)
        return self.op("residual", lambda a, b: a + b, o, x)


class Conv(Model):
    """Convolutions with a norm over channels."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 4)

    def sample(self) -> Tensor:
        return torch.randn(4, 3, 10, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.op("conv_one", lambda v: F.conv2d(v, self.one.weight, self.one.bias, padding=1), x)
        h = self.op("batch_norm", lambda v: F.batch_norm(v, None, None, self.norm.weight, self.norm.bias, True), h)
        h = self.op("relu", lambda v: F.relu(v), h)
        h = self.op("conv_two", lambda v: F.conv2d(v, self.two.weight, self.two.bias, padding=1), h)
        h = self.op("leaky", lambda v: F.leaky_relu(v, 0.01), h)
        h = self.op("pooled", lambda v: v.mean((2, 3)), h)
        return self.op("head", lambda v: F.linear(v, self.head.weight, self.head.bias), h)


class Recurrent(Model):
    """A gated cell over some steps."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.gate, self.cand, self.head = nn.Linear(32, 16), nn.Linear(32, 16), nn.Linear(16, 4)

    def sample(self) -> Tensor:
        return torch.randn(8, 3, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(8, 16, dtype=x.dtype)
        for i in range(3):
            both = self.op(f"joined_{i}", lambda a, b: torch.cat([a, b], -1), x[:, i], h)
            z = self.op(f"gate_{i}", lambda v: torch.sigmoid(F.linear(v, self.gate.weight, self.gate.bias)), both)
            c = self.op(f"cand_{i}", lambda v: torch.tanh(F.linear(v, self.cand.weight, self.cand.bias)), both)
            h = self.op(f"state_{i}", lambda g, a, b: g * a + (1 - g) * b, z, h, c)
        return self.op("head", lambda v: F.linear(v, self.head.weight, self.head.bias), h)


MODELS = {"mlp": Mlp, "attention": Attention, "conv": Conv, "recurrent": Recurrent}


@dataclass(frozen=True)
class Fault:
    """What is wrong, and at which operations of which models it can be planted."""

    what: str
    operation: Operation
    places: tuple[tuple[str, str], ...]


def flip_bit(value: Tensor) -> Tensor:
    """One exponent bit of one value."""
    return torch.where(value.abs() == value.abs().max(), 2 * value, value)


def shifted(value: Tensor) -> Tensor:
    return torch.roll(value, 1, -1)


LINEARS = (("mlp", "linear_a"), ("mlp", "linear_b"), ("attention", "q"), ("attention", "k"), ("attention", "v"),
           ("attention", "out"))
ANY = (*LINEARS, ("mlp", "gelu_a"), ("mlp", "norm_a"), ("attention", "probs"), ("attention", "mixed"), ("conv", "relu"),
       ("conv", "conv_two"), ("conv", "batch_norm"), ("recurrent", "state_1"), ("recurrent", "cand_2"))
LAYER_NORMS = (("mlp", "norm_a"), ("attention", "norm"))


def with_weight(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]) -> Operation:
    """The operation with its weights changed: the lambda's own model is looked at through its linear call."""

    def faulty(operation: Operation, value: Tensor) -> Tensor:
        eye = torch.eye(value.shape[-1], dtype=value.dtype)
        bias = operation(torch.zeros(1, value.shape[-1], dtype=value.dtype))[0]
        weight = operation(eye) - bias
        weight, other = change(weight, bias)
        return value @ weight + (other if other is not None else 0)

    return faulty


FAULTS = (
    Fault("gelu by tanh", lambda op, v: F.gelu(v, approximate="tanh"), (("mlp", "gelu_a"),)),
    Fault("gelu instead of silu", lambda op, v: F.gelu(v), (("mlp", "silu_b"),)),
    Fault("eps 1e-3", lambda op, v: F.layer_norm(v, (32,), eps=1e-3), LAYER_NORMS),
    Fault("eps 1e-6", lambda op, v: F.layer_norm(v, (32,), eps=1e-6), LAYER_NORMS),
    Fault("transposed weight", with_weight(lambda w, b: (w.T, b)), LINEARS),
    Fault("lost bias", with_weight(lambda w, b: (w, None)), LINEARS),
    Fault("bias twice", with_weight(lambda w, b: (w, 2 * b)), LINEARS),
    Fault("one weight of many", with_weight(lambda w, b: (w * (1 + 1e-2 * torch.eye(*w.shape)), b)), LINEARS),
    Fault("scale of another head size", lambda op, v: v / math.sqrt(36), (("attention", "scaled"),)),
    Fault("scale off by 1e-4", lambda op, *v: op(*v) * (1 + 1e-4), ANY),
    Fault("mask off by one", lambda op, v: v.masked_fill(torch.ones(12, 12, dtype=torch.bool).triu(2), -1e4),
          (("attention", "masked"),)),
    Fault("mask lost", lambda op, v: v * 1, (("attention", "masked"),)),
    Fault("half of a sum (a lost all-reduce)", lambda op, v: op(torch.cat([v[..., :16], 0 * v[..., 16:]], -1)), LINEARS),
    Fault("cast to bfloat16", lambda op, *v: op(*v).bfloat16().to(v[0].dtype), ANY),
    Fault("cast to float16", lambda op, *v: op(*v).half().to(v[0].dtype), ANY),
    Fault("stale rows", lambda op, *v: torch.cat([op(*v)[:1], op(*v)[:-1]]), ANY),
    Fault("one exponent bit", lambda op, *v: flip_bit(op(*v)), ANY),
    Fault("shifted by one", lambda op, *v: shifted(op(*v)), ANY),
    Fault("softmax over the wrong dimension", lambda op, v: torch.softmax(v, -2), (("attention", "probs"),)),
    Fault("lost residual", lambda op, a, b: a * 1, (("attention", "residual"),)),
    Fault("sign of an infinity", lambda op, *v: torch.where(op(*v) == op(*v).max(), math.inf, op(*v)), ANY),
    Fault("a NaN", lambda op, *v: torch.where(op(*v) == op(*v).max(), math.nan, op(*v)), ANY),
    Fault("leaky relu", lambda op, v: F.leaky_relu(v, 0.02), (("conv", "relu"), ("conv", "leaky"))),
    Fault("mean of one row less", lambda op, v: v[:, :, 1:].mean((2, 3)), (("conv", "pooled"),)),
    Fault("gates changed places", lambda op, g, a, b: (1 - g) * a + g * b,
          (("recurrent", "state_1"), ("recurrent", "state_2"))),
)


def build(name: str, dtype: torch.dtype = torch.float32) -> tuple[Model, Tensor]:
    torch.manual_seed(11)
    model = MODELS[name](dtype).to(dtype)
    return model, model.sample().to(dtype)


def record(place: str, model: Model, value: Tensor, backend: str | None, layout: str, backward: bool = False) -> None:
    """One step of the model, recorded."""
    run = model
    if backend:
        torch._dynamo.reset()
        run = torch.compile(model, backend=backend, fullgraph=True)
    with tap.record(place, layout=layout, ring_bytes=4 << 20):
        out = run(value)
        if backward:
            out.square().mean().backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    tap.save(parameter.grad, name, "grad")
        tap.step()
