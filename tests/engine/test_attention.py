"""Attention through the engine: types, masks, groups of heads, gradients; errors against float64."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def near(actual, eager, exact):
    few = 16 if eager.dtype in (torch.float32, torch.float64) else 1
    slack = few * torch.finfo(eager.dtype).eps * exact.abs().max().item()
    assert actual.shape == eager.shape and actual.dtype == eager.dtype and not actual.isnan().any()
    assert (actual - exact).abs().max() <= 2 * (eager - exact).abs().max() + slack


def attend(engine, dtype, sizes, **how):
    batch, heads, key_heads, queries, keys, width = sizes
    args = [torch.randn(batch, h, n, width).to(dtype).requires_grad_()
            for h, n in ((heads, queries), (key_heads, keys), (key_heads, keys))]
    wide = [arg.detach().double().requires_grad_() for arg in args]

    def function(q, k, v):
        mask = how.get("attn_mask")
        if mask is not None and mask.is_floating_point():
            return scaled_dot_product_attention(q, k, v, **{**how, "attn_mask": mask.to(q.dtype)})
        return scaled_dot_product_attention(q, k, v, **how)

    compiled = engine.compile(function)
    actual, eager, exact = compiled(*args), function(*args), function(*wide)
    near(actual, eager, exact)
    cotangent = torch.randn_like(eager)
    found = torch.autograd.grad(actual, args, cotangent)
    for mine, theirs, true in zip(found, torch.autograd.grad(eager, args, cotangent),
                                  torch.autograd.grad(exact, wide, cotangent.double())):
        near(mine, theirs, true)
    assert not any("scaled_dot_product" in name for name in engine.host())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(2, 4, 4, 10, 12, 8), (1, 2, 2, 200, 700, 64), (1, 4, 2, 33, 40, 16)], ids=str)
def test_attention(engine, dtype, causal, sizes):
    attend(engine, dtype, sizes, is_causal=causal, enable_gqa=sizes[1] != sizes[2])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("mask", ["rows", "whole", "keys", "bool"])
def test_masks(engine, dtype, mask):
    shapes = {"rows": [10, 12], "whole": [2, 4, 10, 12], "keys": [2, 1, 1, 12], "bool": [10, 12]}
    value = torch.randn(shapes[mask]).to(dtype)
    attend(engine, dtype, (2, 4, 4, 10, 12, 8), attn_mask=value > -0.5 if mask == "bool" else value)


def test_scale(engine):
    attend(engine, torch.float32, (2, 4, 4, 10, 12, 8), scale=0.3)


def test_a_query_that_sees_nothing(engine):
    mask = torch.zeros(10, 12)
    mask[3] = -math.inf
    q, k, v = (torch.randn(2, 4, n, 8) for n in (10, 12, 12))
    actual = engine.compile(lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask))(q, k, v)
    assert (actual[:, :, 3] == 0).all()
    torch.testing.assert_close(actual, scaled_dot_product_attention(q, k, v, attn_mask=mask))


def test_the_same_bits_for_any_number_of_threads(engine):
    q, k, v = (torch.randn(2, 3, 300, 32) for _ in range(3))
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(engine.compile(lambda q, k, v: scaled_dot_product_attention(q, k, v))(q, k, v))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
