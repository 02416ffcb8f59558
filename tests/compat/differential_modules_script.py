"""Run under msprobe and under tensortap: python differential_modules_script.py CONFIG; the same model in both."""
import collections
import os
import sys

import torch
from msprobe.pytorch import PrecisionDebugger, seed_all

Pair = collections.namedtuple("Pair", "left right")


class Split(torch.nn.Module):
    """Takes keywords, gives a tuple or a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(4))
        self.frozen = torch.nn.Parameter(torch.randn(2), requires_grad=False)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None, *, gain: float = 1.0, flags: tuple[object, ...] = (), mapping: bool = False) -> object:
        y = x * self.scale * gain
        if mapping:
            return {"sum": y.sum(), "parts": [y, other], "count": 3, "pair": Pair(y * 2, "text")}
        return y, other, None, 2.5


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 4)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()))
        self.split = Split()
        self.twice = torch.nn.Linear(4, 4)
        self.drop = torch.nn.Dropout(0.0)
        self.norm = torch.nn.BatchNorm1d(4)
        self.inplace = torch.nn.ReLU(inplace=True)
        self.embed = torch.nn.Embedding(5, 4)
        self.relu = torch.nn.ReLU()
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        h = self.norm(self.body(h))
        h = h + self.embed(tokens)
        a, b, _, _ = self.split(h, other=h * 2, gain=2.0, flags=(1, "a", True))
        made = self.split(x=a, other=b, mapping=True)
        y = self.twice(self.twice(made["parts"][0] + made["pair"].left))
        y = self.inplace(y * 3)
        with torch.no_grad():
            z = self.relu(x[:, :4])
        return self.drop(y) + z + made["sum"]


def main() -> None:
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    seed_all(7)
    model = Model()
    debugger = PrecisionDebugger(sys.argv[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(3):
        debugger.start(model=model)
        out = model(torch.randn(3, 8), torch.tensor([1, 2, 4]))
        out.sum().backward()
        debugger.stop()
        model(torch.randn(3, 8), torch.tensor([1, 2, 4]))
        debugger.step()
        optimizer.step()
        optimizer.zero_grad()
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
