"""Run under msprobe and under tensortap: python differential_script.py CONFIG; the same saves in both."""
import collections
import os
import sys

import numpy as np
import torch
from msprobe.pytorch import PrecisionDebugger, seed_all

Pair = collections.namedtuple("Pair", "left right")


def values() -> dict[str, object]:
    inf, nan = float("inf"), float("nan")
    made: dict[str, object] = {
        "f32": torch.randn(7, 5), "f64": torch.randn(9, dtype=torch.float64), "f16": torch.randn(64).half(),
        "bf16": torch.randn(64).bfloat16(), "strided": torch.randn(6, 8)[::2, 1::3], "t": torch.randn(4, 3).t(),
        "i64": torch.randint(-9, 9, (5,)), "i32": torch.arange(6, dtype=torch.int32), "i16": torch.arange(-3, 3).short(),
        "i8": torch.tensor([-128, 5], dtype=torch.int8), "u8": torch.tensor([1, 255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]), "all": torch.tensor([True, True]), "c64": torch.randn(5, dtype=torch.complex64),
        "c128": torch.randn(5, dtype=torch.complex128), "d0": torch.tensor(-3.5), "d0i": torch.tensor(7),
        "d0f64": torch.tensor(-0.1, dtype=torch.float64), "d0b": torch.tensor(True), "d0h": torch.tensor(0.1).bfloat16(),
        "empty": torch.empty(0, 3), "empty_i": torch.empty(0, dtype=torch.int64), "nan": torch.tensor([1.0, nan, 2.0]),
        "inf": torch.tensor([inf, -1.0]), "both": torch.tensor([inf, -inf]), "ninf16": torch.tensor([-inf, 1.0]).half(),
        "f16_large": torch.full((300,), 6e4).half(), "needs": torch.randn(3, requires_grad=True), "view": torch.randn(8)[2:5],
        "param": torch.nn.Parameter(torch.randn(2)), "f8": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
        "int": 5, "float": 2.5, "str": "text é\n", "true": True, "fnan": nan, "finf": -inf, "np64": np.float64(0.1),
        "list": [], "dict": {}, "size": torch.Size([2, 3]),
        "nested": {"k": [torch.ones(2), 1, {"x": (torch.zeros(1), "s")}], "e": [], "d": {}, "b": True},
        "tuple": (torch.arange(3.0), (1, 2.0)), "pair": Pair(torch.ones(1), 3), "keys": {"dtype": "torch.int8", "device": "cpu"},
        "deep": [[[[[[[[torch.ones(1)]]]]]]]],
    }
    return made


def main() -> None:
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    seed_all(7)
    debugger = PrecisionDebugger(sys.argv[1])
    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    for _ in range(2):
        for name, value in values().items():
            PrecisionDebugger.save(value, name, save_backward=False)
        x = torch.randn(10, 8, requires_grad=True)
        hidden = module[0](x)
        out = module[2](module[1](hidden))
        debugger.save(hidden, "hidden")
        debugger.save({"out": [out, x], "n": 1, "w": module[0].weight.detach()}, "tree")
        debugger.save(hidden * 1, "unused")
        for i in range(3):
            PrecisionDebugger.save(out * i, "again")
        half = out.bfloat16()
        debugger.save(half, "half")
        (half.sum() + out.sum()).backward()
        debugger.step()
    debugger.save(torch.ones(2), "last")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
