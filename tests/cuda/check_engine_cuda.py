"""The engine with tensors on a CUDA device, where torch runs each node: python tests/cuda/check_engine_cuda.py

Not part of the test command, since it needs a device; prints one line per check and exits non-zero when one fails.
"""

import sys

import torch

import tensortap


def net(x, w):
    return torch.nn.functional.gelu(x @ w).softmax(-1).sum()


def forward_and_backward():
    x, w = torch.randn(64, 32, device="cuda"), torch.randn(32, 16, device="cuda", requires_grad=True)
    (expected,) = torch.autograd.grad(net(x, w), w)
    compiled = torch.compile(net, backend="tensortap", fullgraph=True)
    torch.testing.assert_close(compiled(x, w), net(x, w))
    (gradient,) = torch.autograd.grad(compiled(x, w), w)
    torch.testing.assert_close(gradient, expected)
    assert tensortap.counters()["host"] > 0


def dynamic_shapes():
    compiled = torch.compile(lambda x: torch.relu(x[1:]) * x.shape[0], backend="tensortap", fullgraph=True, dynamic=True)
    for rows in (3, 5, 9):
        x = torch.randn(rows, 4, device="cuda")
        torch.testing.assert_close(compiled(x), torch.relu(x[1:]) * rows)


def both_devices():
    def f(x, y):
        return (x.cpu() * 2 + y).sum(), x + y.cuda()

    compiled = torch.compile(f, backend="tensortap", fullgraph=True)
    x, y = torch.randn(8, device="cuda"), torch.randn(8)
    torch.testing.assert_close(compiled(x, y), f(x, y))


def mutation():
    def f(x, state):
        state.add_(x)
        return state * 2

    compiled = torch.compile(f, backend="tensortap", fullgraph=True)
    x, a, b = torch.randn(8, device="cuda"), torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    torch.testing.assert_close(compiled(x, a), f(x, b))
    torch.testing.assert_close(a, b)


def transformer_training():
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True).cuda()
    compiled = torch.compile(layer, backend="tensortap")
    x = torch.randn(2, 16, 64, device="cuda")
    expected = torch.autograd.grad(layer(x).square().mean(), list(layer.parameters()))
    actual = torch.autograd.grad(compiled(x).square().mean(), list(layer.parameters()))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def taps_on_nodes():
    import tempfile

    compiled = torch.compile(net, backend="tensortap", fullgraph=True, options={"tap": "gelu*"})
    x, w = torch.randn(4, 8, device="cuda"), torch.randn(8, 4, device="cuda")
    with tempfile.TemporaryDirectory() as directory:
        with tensortap.record(directory + "/run"):
            compiled(x, w)
        with tensortap.open(directory + "/run") as run:
            (record,) = list(run.query())
            torch.testing.assert_close(torch.tensor(record.numpy()), torch.nn.functional.gelu(x @ w).cpu())


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was checked")
        return 1
    failed = 0
    for check in (forward_and_backward, dynamic_shapes, both_devices, mutation, transformer_training, taps_on_nodes):
        torch._dynamo.reset()
        torch.manual_seed(0)
        try:
            check()
            print(f"ok      {check.__name__}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {check.__name__}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
