"""PrecisionDebugger inside compiled code: python compiled_script.py BACKEND; "none" does not compile."""
import torch, sys, json, glob
torch.manual_seed(0)
from msprobe.pytorch import PrecisionDebugger
d = PrecisionDebugger(dump_path="dp_"+sys.argv[1], level="debug", task="tensor")
lin = torch.nn.Linear(3, 2)
def f(x):
    h = lin(x)
    PrecisionDebugger.save(h, "h")
    y = torch.relu(h) * 2
    d.save({"y": [y, 1, "s"], "z": None}, "tree")
    d.save(y, "y", save_backward=False)
    return y.sum()
g = torch.compile(f, backend=sys.argv[1], fullgraph=True) if sys.argv[1] != "none" else f
torch.manual_seed(0)
lin.weight.data.fill_(.5)
for i in range(2):
    x = torch.full((4, 3), float(i+1))
    a = g(x); b = g(x * 2)
    (a + b).backward()
    d.step()
