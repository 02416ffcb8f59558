"""mindstudio-probe's side of the table: run by its own Python, prints "name value" lines like bench_record does."""

from __future__ import annotations

import contextlib
import io
import sys
import time

import torch


def main(directory: str) -> None:
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet):
        from msprobe.pytorch import PrecisionDebugger

        PrecisionDebugger(dump_path=directory, level="debug", task="tensor")
        small = torch.arange(256, dtype=torch.float32)
        best = 1e9
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(100):
                PrecisionDebugger.save(small, "x", save_backward=False)
            best = min(best, (time.perf_counter() - start) / 100)
            PrecisionDebugger.step()
        large = torch.ones(64 << 18, dtype=torch.float32)
        big = 1e9
        for _ in range(3):
            start = time.perf_counter()
            PrecisionDebugger.save(large, "y", save_backward=False)
            big = min(big, time.perf_counter() - start)
            PrecisionDebugger.step()
    print(f"msprobe_small {best * 1e6:.6g} us")
    print(f"msprobe_big {big * 1e3:.6g} ms")


if __name__ == "__main__":
    main(sys.argv[1])
