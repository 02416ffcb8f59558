"""Whose memory is whose: what callers may keep, what a run may write, and what runs at the same time may share."""

from __future__ import annotations

import threading

import pytest
import torch

import tensortap


def test_outputs_kept_across_calls_stay_as_they_are(engine):
    compiled = engine.compile(lambda x: (torch.tanh(x * 2) + 1, (x @ x.t()).relu() * 3))
    kept, wanted = [], []
    for i in range(8):
        x = torch.randn(16, 16) + i
        kept.append(compiled(x))
        wanted.append((torch.tanh(x * 2) + 1, (x @ x.t()).relu() * 3))
    torch.testing.assert_close(kept, wanted)
    assert len({t.untyped_storage().data_ptr() for pair in kept for t in pair}) == 16


def test_interior_values_of_two_forwards(engine):
    w = torch.randn(8, 8, requires_grad=True)

    def f(x):
        h = torch.tanh(x @ w)
        return (torch.sigmoid(h * 2) @ w).square().sum()

    compiled = engine.compile(f)
    inputs = [torch.randn(4, 8) for _ in range(5)]
    losses = [compiled(x) for x in inputs]
    for x, loss in reversed(list(zip(inputs, losses))):
        (actual,) = torch.autograd.grad(loss, w)
        (expected,) = torch.autograd.grad(f(x), w)
        torch.testing.assert_close(actual, expected)


def test_a_host_operator_that_calls_the_graph_again(engine):
    """Re-entry: the outer run's interior values must survive the inner one."""
    depth = []

    @torch.library.custom_op("tap_test::again", mutates_args=())
    def again(x: torch.Tensor) -> torch.Tensor:
        if len(depth) >= 3:
            return x + 1
        depth.append(1)
        try:
            return compiled(x * 0.5)
        finally:
            depth.pop()

    @again.register_fake
    def _(x):
        return torch.empty_like(x)

    def f(x):
        interior = torch.exp(x) * 2
        table = interior @ interior.t()
        inner = torch.ops.tap_test.again(x)
        return (table @ inner + interior).sum(-1, keepdim=True) * torch.ones_like(x)

    def eager(x, level=0):
        interior = torch.exp(x) * 2
        table = interior @ interior.t()
        inner = x + 1 if level == 3 else eager(x * 0.5, level + 1)
        return (table @ inner + interior).sum(-1, keepdim=True) * torch.ones_like(x)

    compiled = engine.compile(f)
    x = torch.randn(4, 4) * 0.1
    torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-4)


def test_views_of_inputs_are_views(engine):
    def f(x):
        return x[1:, ::2], x.t(), x.view(-1)[3:], x.detach()

    x = torch.randn(4, 6)
    results = engine.compile(f)(x)
    torch.testing.assert_close(results, f(x))
    for result in results:
        assert result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    x.zero_()
    assert all(result.eq(0).all() for result in results)


def test_writes_through_views_of_inputs(engine):
    def f(x, y):
        before = x.sum(0)
        x[1:].mul_(2)
        x.t()[0].add_(y)
        x.view(-1)[::3] = 7
        return before, x.sum(0), x[0] * y[0]

    engine.check(f, torch.randn(4, 5), torch.randn(4), native=False)


def test_the_same_tensor_given_twice(engine):
    def f(x, y):
        x.add_(1)
        return x * y, y + 1

    for same in (True, False):
        compiled = engine.compile(f)
        x = torch.randn(3, 3)
        y = x if same else torch.randn(3, 3)
        mine = x.clone()
        other = mine if same else y.clone()
        torch.testing.assert_close(compiled(x, y), f(mine, other))
        torch.testing.assert_close(x, mine)


def test_overlapping_views_given_as_two_inputs(engine):
    def f(x, y):
        x.mul_(2)
        return x + y

    compiled = engine.compile(f)
    for _ in range(2):
        base, mine = torch.arange(6.0), torch.arange(6.0)
        torch.testing.assert_close(compiled(base[:4], base[2:]), f(mine[:4], mine[2:]))
        torch.testing.assert_close(base, mine)


@pytest.mark.parametrize("sizes", [(0,), (0, 3), (3, 0), (2, 0, 4)], ids=str)
def test_nothing_in_it(engine, sizes):
    def f(x):
        y = torch.relu(x * 2 + 1)
        return y, y.sum(), y.flatten(), torch.cat([y, y]), y.max() if y.numel() else y

    engine.check(f, torch.randn(sizes), native=False)


def test_many_threads(engine):
    """64 threads, two shapes: each run has an arena, plans are shared."""
    w = torch.randn(32, 32)

    def f(x):
        h = torch.tanh(x @ w)
        return (h * 2 + x).softmax(-1) @ w

    compiled = engine.compile(f, dynamic=True)
    inputs = [torch.randn(2 + i % 2, 32) for i in range(64)]
    wanted = [f(x) for x in inputs]
    compiled(inputs[0]), compiled(inputs[1])
    wrong, start = [], threading.Barrier(64)

    def work(index):
        try:
            start.wait()
            for _ in range(20):
                torch.testing.assert_close(compiled(inputs[index]), wanted[index])
        except BaseException as error:
            wrong.append((index, error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert tensortap.counters()["graphs"] == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=lambda mode: mode.__name__)
def test_without_gradients(engine, mode):
    w = torch.randn(4, 4, requires_grad=True)

    def f(x):
        return torch.relu(x @ w), x.t(), w * 1

    compiled, x = engine.compile(f), torch.randn(3, 4)
    with mode():
        actual, expected = compiled(x), f(x)
    torch.testing.assert_close(actual, expected)
    assert [t.requires_grad for t in actual] == [t.requires_grad for t in expected]
    assert [t.is_inference() for t in actual] == [t.is_inference() for t in expected]


def test_torch_func_grad_inside_a_compiled_function(engine):
    def f(x):
        return torch.func.grad(lambda y: torch.sin(y).sum() * y.prod())(x)

    engine.check(f, torch.randn(5), native=False)


def test_torch_func_grad_of_a_compiled_function(engine):
    """The answer is torch's own: a gradient, or an error that says it is not done. Never a wrong value."""
    x = torch.randn(5)
    expected = torch.func.grad(lambda y: (torch.sin(y) * y).sum())(x)
    compiled = engine.compile(lambda y: (torch.sin(y) * y).sum())
    try:
        actual = torch.func.grad(compiled)(x)
    except RuntimeError as error:
        assert "torch.func" in str(error) or "functorch" in str(error)
    else:
        torch.testing.assert_close(actual, expected)
