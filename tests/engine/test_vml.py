"""MKL's vector mathematics, which eager computes with: where it is used, results are eager's own bits."""

import os
import subprocess
import sys

import pytest
import torch

SCRIPT = """
import torch, tensortap
wide = torch.randn(300, 37) * 3
positive, unit = wide.abs() + 0.01, torch.rand(300, 37) * 1.9 - 0.95
edges = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38, -2.0] * 7)
given = {"acos": unit, "asin": unit, "atan": wide, "cos": wide, "erfc": wide, "erfinv": unit, "log": positive, "log10": positive}
given |= {"log2": positive, "sin": wide, "tan": wide, "tanh": wide}
values = [(getattr(torch, name), value) for name, x in given.items() for value in (x, x.double(), edges, x[:, ::2], x.bfloat16(), x[:0])]


def everything(tensors):
    return [function(tensor) for (function, _), tensor in zip(values, tensors)]


tensors = [value for _, value in values]
differ = 0
for mine, eager in zip(torch.compile(everything, backend="tensortap", fullgraph=True)(tensors), everything(tensors)):
    torch.testing.assert_close(mine, eager, equal_nan=True)
    if mine.dtype != torch.bfloat16:  # which eager computes by other functions
        differ += int(not ((mine == eager) | (mine.isnan() & eager.isnan())).all())
print("differ", differ)
"""


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this torch has no MKL")
@pytest.mark.parametrize("wanted", ["1", "0"])
def test_bits_of_eager(wanted: str) -> None:
    env = os.environ | {"TENSORTAP_VML": wanted}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    differ = int(done.stdout.split()[-1])
    # the other functions are as good, but not the same: or the switch would do nothing
    assert (differ == 0) == (wanted == "1"), done.stdout
