"""An operator of one's own: defined for torch in three lines, run by the engine from a C library.

    python scaled_add.py LIBRARY
"""

import sys

import tensortap
import torch

library = torch.library.Library("example", "DEF")
library.define("scaled_add(Tensor x, Tensor other, float factor=1.0) -> Tensor")
library.impl("scaled_add", lambda x, other, factor=1.0: torch.empty_like(x), "Meta")
library.impl("scaled_add", lambda x, other, factor=1.0: x + factor * other, "CPU")

tensortap.load_library(sys.argv[1])


@torch.compile(backend="tensortap", fullgraph=True, options={"strict": True})
def f(x, y):
    return torch.ops.example.scaled_add(x * 2, y, 0.5)


print(f(torch.ones(2, 3), torch.arange(3.0).expand(2, 3)))
print(tensortap.counters()["host"], "nodes ran in torch")
