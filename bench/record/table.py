"""Prints the recorder's speed table: every line beside its limit or its peer, measured in the same run.

    python bench/record/table.py BUILD_DIR [WORK_DIR]

The numbers are ratios on one machine at one time; the column "reach" is what we set out for.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_lines(command: list[str]) -> dict[str, float]:
    """Runs a program that prints "name value unit" lines."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[0]: float(row[1]) for row in rows if len(row) >= 2}


def best_of(rounds: int, count: int, call: object) -> float:
    best = 1e9
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            call()  # type: ignore[operator]
        best = min(best, (time.perf_counter() - start) / count)
    return best


def python_side(work: pathlib.Path) -> dict[str, float]:
    """numpy.save, torch.save and our own save, from Python."""
    import numpy as np
    import torch

    import tensortap as tap

    small = np.arange(256, dtype=np.float32)
    small_torch = torch.from_numpy(small)
    large = np.ones(64 << 18, dtype=np.float32)
    (work / "files").mkdir()
    path = str(work / "files" / "x.npy")
    result = {
        "off_python": best_of(5, 200_000, lambda: tap.save(small, "x")) * 1e9,
        "lambda": best_of(5, 200_000, lambda: None) * 1e9,
        "numpy_small": best_of(10, 300, lambda: np.save(path, small)) * 1e6,
        "torch_small": best_of(10, 300, lambda: torch.save(small_torch, path)) * 1e6,
        "numpy_big": best_of(3, 1, lambda: np.save(path, large)) * 1e3,
        "torch_big": best_of(3, 1, lambda: torch.save(torch.from_numpy(large), path)) * 1e3,
    }
    with tap.record(str(work / "python"), ring_bytes=256 << 20) as recorder:
        best = best_torch = 1e9
        for _ in range(20):
            recorder.flush()
            best = min(best, best_of(1, 5000, lambda: tap.save(small, "layer.0.output")))
            recorder.flush()
            best_torch = min(best_torch, best_of(1, 5000, lambda: tap.save(small_torch, "layer.0.output")))
    result["small_python"] = best * 1e6
    result["small_python_torch"] = best_torch * 1e6
    return result


def peer_side(work: pathlib.Path) -> dict[str, float]:
    python = ROOT / ".venv-bench" / "bin" / "python"
    if not python.exists():
        print("mindstudio-probe is not beside us: .venv-bench is missing, run: tools/setup.sh bench", file=sys.stderr)
        return {}
    return run_lines([str(python), str(ROOT / "bench" / "record" / "peer_msprobe.py"), str(work / "msprobe")])


class Table:
    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str, bool]] = []

    def add(self, what: str, measured: str, beside: str, reach: str, met: bool) -> None:
        self.rows.append((what, measured, beside, reach, met))

    def show(self) -> bool:
        head = ("what", "measured", "beside it, same run", "reach", "")
        cells = [head, *((*row[:4], "met" if row[4] else "MISSED") for row in self.rows)]
        widths = [max(len(str(row[i])) for row in cells) for i in range(5)]
        for number, row in enumerate(cells):
            print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
            if number == 0:
                print("  ".join("-" * width for width in widths))
        return all(row[4] for row in self.rows)


def main() -> int:
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release")
    base = sys.argv[2] if len(sys.argv) > 2 else None
    work = pathlib.Path(tempfile.mkdtemp(prefix="tap-bench-", dir=base))
    os.environ.setdefault("TENSORTAP_WRITER", str(build / "tensortap"))
    free = shutil.disk_usage(work).free
    try:
        scan = run_lines([str(build / "bench_scan"), "--lines"])
        lines = ["small", "off", "big", "compat", "records", "list"]
        lines.append("sustained" if free > 24 << 30 else "sustained-short")
        record = run_lines([str(build / "bench_record"), str(work), *lines])
        python = python_side(work)
        peer = peer_side(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    table = Table()
    msprobe = f", mindstudio-probe {peer['msprobe_small']:.0f} us" if peer else ""
    table.add("save 256 floats with tensor, from C", f"{record['small']:.2f} us",
              f"numpy.save {python['numpy_small']:.0f} us, torch.save {python['torch_small']:.0f} us{msprobe}",
              "0.5 us", record["small"] <= 0.5)
    table.add("the same from Python, numpy array", f"{python['small_python']:.2f} us", "", "2 us",
              python["small_python"] <= 2)
    table.add("the same from Python, torch tensor", f"{python['small_python_torch']:.2f} us", "", "2 us",
              python["small_python_torch"] <= 2)
    table.add("statistics, 64 MiB float32, one thread", f"{scan['stats']:.1f} GB/s",
              f"pure read {scan['read']:.1f} GB/s: {scan['stats'] / scan['read']:.0%}", "85 %",
              scan["stats"] >= 0.85 * scan["read"])
    table.add("statistics and hash", f"{scan['stats+hash']:.1f} GB/s",
              f"pure read {scan['read']:.1f} GB/s: {scan['stats+hash'] / scan['read']:.0%}", "65 %",
              scan["stats+hash"] >= 0.65 * scan["read"])
    big = f", mindstudio-probe {peer['msprobe_big']:.0f} ms" if peer else ""
    table.add("save 64 MiB with tensor, caller blocked", f"{record['big_save']:.2f} ms",
              f"memcpy {record['big_memcpy']:.2f} ms: {record['big_save'] / record['big_memcpy']:.2f}x, "
              f"numpy.save {python['numpy_big']:.0f} ms, torch.save {python['torch_big']:.0f} ms{big}", "1.1x memcpy",
              record["big_save"] <= 1.1 * record["big_memcpy"])
    ratio = record["sustained_record"] / record["sustained_direct"]
    amount = "8 GiB" if "sustained" in lines else "1 GiB (too little free disk for 8)"
    table.add(f"sustained to disk, {amount}", f"{record['sustained_record']:.2f} GB/s",
              f"O_DIRECT, 4 MiB blocks {record['sustained_direct']:.2f} GB/s: {ratio:.0%}", "85 %", ratio >= 0.85)
    table.add("small records, sustained, indexed", f"{record['records']:,.0f} /s", "", "150,000 /s",
              record["records"] >= 150_000)
    table.add(f"open and list {record['list_records']:,.0f} records", f"{record['list']:.2f} s", "", "1 s",
              record["list"] <= 1)
    table.add("one query by name and step", f"{record['find']:.2f} ms", "", "5 ms", record["find"] <= 5)
    table.add("recording off, from C", f"{record['off']:.2f} ns", "", "2 ns", record["off"] <= 2)
    off = python["off_python"] - python["lambda"]
    table.add("recording off, from Python", f"{off:.0f} ns",
              f"the timing loop's own call, taken off: {python['lambda']:.0f} ns", "40 ns", off <= 40)
    table.add("a compat save of 256 floats, file in place", f"{record['compat']:.0f} us",
              f"numpy.save {python['numpy_small']:.0f} us", "numpy.save", record["compat"] <= python["numpy_small"])
    return 0 if table.show() else 1


if __name__ == "__main__":
    sys.exit(main())
