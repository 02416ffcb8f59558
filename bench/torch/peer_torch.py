"""mindstudio-probe's side of the torch table: run by its own Python, prints one JSON object of seconds.

    python peer_torch.py TASK DIRECTORY MEGABYTES ROUNDS        TASK: statistics or tensor
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

import torch
from small_gpt import Gpt, best, make_step, median


def main(task: str, directory: str, megabytes: int, rounds: int) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        from msprobe.pytorch import PrecisionDebugger

        torch.manual_seed(0)
        PrecisionDebugger(dump_path=directory, level="debug", task=task)
        small, large = torch.randn(256), torch.randn(megabytes << 18)
        times = {}
        times["small"] = best(lambda: PrecisionDebugger.save(small, "x", save_backward=False), 50)
        PrecisionDebugger.step()
        times["large"] = best(lambda: PrecisionDebugger.save(large, "y", save_backward=False), 1, 3)
        PrecisionDebugger.step()
        model = Gpt()
        step = make_step(model, PrecisionDebugger.step)
        plain, tapped = [], []
        for _ in range(rounds):
            plain.append(best(step, 1, 1))
            handles = [
                block.register_forward_hook(lambda _m, _a, y, n=n: PrecisionDebugger.save(y, f"block{n}"))
                for n, block in enumerate(model.blocks)
            ]
            tapped.append(best(step, 1, 1))
            for handle in handles:
                handle.remove()
        times["training"] = median(tapped) / median(plain)
    print(json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
