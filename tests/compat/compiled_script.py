"""PrecisionDebugger inside compiled code: python compiled_script.py BACKEND; "none" does not compile."""
import sys

import torch
from msprobe.pytorch import PrecisionDebugger

torch.manual_seed(0)
debugger = PrecisionDebugger(dump_path="dp_" + sys.argv[1], level="debug", task="tensor")
linear = torch.nn.Linear(3, 2)


def work(x: torch.Tensor) -> torch.Tensor:
    hidden = linear(x)
    PrecisionDebugger.save(hidden, "h")
    y = torch.relu(hidden) * 2
    debugger.save({"y": [y, 1, "s"], "z": None}, "tree")
    debugger.save(y, "y", save_backward=False)
    return y.sum()


run = work if sys.argv[1] == "none" else torch.compile(work, backend=sys.argv[1], fullgraph=True)
linear.weight.data.fill_(0.5)
for i in range(2):
    x = torch.full((4, 3), float(i + 1))
    (run(x) + run(x * 2)).backward()
    debugger.step()
