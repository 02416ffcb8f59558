"""The engine as a whole: what a graph promises its caller, whoever runs its nodes."""

import threading

import pytest
import torch

import tensortap


def test_outputs_have_the_strides_of_eager(engine):
    def f(x):
        return (x + 1).t().contiguous(), (x * 2).t(), x[1:, ::2]

    engine.check(f, torch.randn(4, 6), native=False)


def test_training(engine):
    def f(x, w, b):
        return torch.nn.functional.gelu(x @ w + b).square().mean()

    args = [torch.randn(4, 8), torch.randn(8, 5, requires_grad=True), torch.randn(5, requires_grad=True)]
    engine.check(f, *args, backward=True, native=False)


def test_two_forwards_before_one_backward(engine):
    w = torch.randn(8, 8, requires_grad=True)
    compiled = engine.compile(lambda x: torch.tanh(x @ w).sum())
    first, second = torch.randn(3, 8), torch.randn(3, 8)
    a, b = compiled(first), compiled(second)
    (gradient_b,) = torch.autograd.grad(b, w)
    (gradient_a,) = torch.autograd.grad(a, w)
    for x, gradient in ((first, gradient_a), (second, gradient_b)):
        (expected,) = torch.autograd.grad(torch.tanh(x @ w).sum(), w)
        torch.testing.assert_close(gradient, expected)


def test_mutation_of_inputs(engine):
    def f(x, state):
        old = state * 1
        state.add_(x)
        x.mul_(2)
        return old + state

    engine.check(f, torch.randn(5), torch.randn(5), native=False)


def test_output_that_is_an_input_or_twice_the_same(engine):
    def f(x):
        y = x + 1
        return x, y, y, y.view(-1)

    compiled = engine.compile(f)
    x = torch.randn(2, 3)
    a, b, c, d = compiled(x)
    assert a is x
    assert b.data_ptr() == c.data_ptr() == d.data_ptr()
    torch.testing.assert_close(b, x + 1)


def test_dynamic_shapes_make_plans_not_compiles(engine):
    compiled = engine.compile(lambda x: torch.relu(x[1:] * x.shape[0]).sum(-1), dynamic=True)
    for rows in (3, 5, 9, 3):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), torch.relu(x[1:] * rows).sum(-1))
    counts = tensortap.counters()
    assert counts["graphs"] == 1 and counts["plans"] == 3 and counts["runs"] == 4


def test_sizes_that_depend_on_data(engine):
    def f(x):
        at = x.nonzero()
        return at * 2, at.shape[0] + 1, (at + at).sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = engine.compile(f)
        for _ in range(4):
            x = torch.randint(0, 2, (12,))
            torch.testing.assert_close(compiled(x), f(x))


def test_numbers_out_of_tensors(engine):
    def f(x):
        n = x.sum().item()
        torch._check(n >= 0)
        torch._check(n < 100)
        return torch.ones(n) * 2, n

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = engine.compile(f)
        for n in (3, 0, 7):
            torch.testing.assert_close(compiled(torch.tensor([n])), f(torch.tensor([n])))


def test_zero_sizes_and_zero_dimensions(engine):
    def f(x, y):
        return x + y, (x * y).sum(), x.t()

    engine.check(f, torch.empty(0, 3), torch.randn(3), native=False)
    engine.check(f, torch.tensor(2.0), torch.tensor(3.0), native=False)


def test_random_operators_keep_torchs_generator(engine):
    def f(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    compiled = engine.compile(f)
    x = torch.randn(64)
    torch.manual_seed(3)
    first = compiled(x)
    torch.manual_seed(3)
    second = compiled(x)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_two_threads(engine):
    w = torch.randn(64, 64)
    compiled = engine.compile(lambda x: torch.relu(x @ w) + 1)
    inputs = [torch.randn(32, 64) for _ in range(8)]
    expected = [torch.relu(x @ w) + 1 for x in inputs]
    compiled(inputs[0])
    wrong = []

    def work(index):
        for _ in range(50):
            if not torch.allclose(compiled(inputs[index]), expected[index], atol=1e-5):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_control_flow_runs_on_the_host(engine):
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    engine.check(f, torch.ones(3), native=False)
    engine.check(f, -torch.ones(3), native=False)


def test_an_exception_of_torchs_comes_through(engine):
    compiled = engine.compile(lambda x, i: torch.index_select(x, 0, i) + 1)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        compiled(torch.randn(3), torch.tensor([5]))


def test_an_option_that_does_not_exist(engine):
    with pytest.raises(Exception, match="no option 'nmae'; did you mean 'name'"):
        engine.compile(lambda x: x + 1, nmae="x")(torch.ones(1))
    with pytest.raises(Exception, match="option 'name' takes str, not int"):
        engine.compile(lambda x: x + 1, name=3)(torch.ones(1))


def test_operators_with_effects(engine):
    """Their order is kept by tokens, inputs of the graph that are None when it runs."""

    def f(x):
        return torch.linalg.cholesky(x @ x.T + 3 * torch.eye(4)) * 2

    engine.check(f, torch.randn(4, 4), native=False)
    compiled = engine.compile(lambda x: torch.linalg.cholesky(x) * 2)
    with pytest.raises(RuntimeError, match="not positive-definite"):
        compiled(-torch.eye(4))
