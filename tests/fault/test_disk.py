"""Full, broken, read-only and ill-mannered disks: a clear message, no hang, and every save is on disk or listed."""

from __future__ import annotations

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest
from faults import Stress, program, verify

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    where = tmp_path / "disk"
    where.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(where)], capture_output=True,
                          text=True, check=False)
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def json_lines(command: str, directory: pathlib.Path) -> list[dict[str, object]]:
    """What the command says of the recording, object by object."""
    limit = ["--limit", "0"] if command == "ls" else []
    done = subprocess.run([program("tensortap"), command, str(directory), "--json", *limit], capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("reserve", [0, 2 * MIB])
def test_full_disk(small_disk: pathlib.Path, tmp_path: pathlib.Path, reserve: int) -> None:
    """Everything that fitted is whole, the rest keeps its statistics or is listed, the producer ends by itself."""
    place = small_disk / "here"
    place.mkdir()
    run = Stress(place, truth=tmp_path, count=400, reserve=reserve, stall=5000).ready()
    out, err = run.finish()
    assert "failures" in out, out + err
    assert "disk is full" in err, err
    assert run.process.returncode == 0
    text = run.check("lossy")
    assert "whole 0," not in text, text
    result = verify(run.dir)
    assert result.returncode == 1, result.stdout + result.stderr


@pytest.mark.parametrize("layout", ["msprobe", "msprobe_modules", "torchair", "mindspore", "torch_npu", "troubleshooter"])
@pytest.mark.parametrize("ends", ["close", "_exit"])
def test_full_disk_lists_what_it_kept_out(small_disk: pathlib.Path, tmp_path: pathlib.Path, layout: str,
                                          ends: str) -> None:
    """Asynchronous saves that returned are read back or listed by name; close says so."""
    place = small_disk / "here"
    place.mkdir()
    with open(small_disk / "ballast", "wb") as ballast:
        ballast.write(bytes(22 * MIB))
    keys: dict[str, object] = {"layout": layout, "async": 1, "step": 40, "count": 150, "threads": 1, "stall": 3000}
    run = Stress(place, truth=tmp_path, exit=ends, **keys).ready()
    out, err = run.finish()
    assert "No space left" in err, err
    assert ends == "_exit" or "close E_LOST" in out, out
    run.wait_for_writer()
    listed = json_lines("verify", run.dir)
    there = {re.search(r"v\d+", str(r["name"])).group() for r in json_lines("ls", run.dir)}  # type: ignore[union-attr]
    named = {found.group() for p in listed if (found := re.search(r"v\d+", str(p.get("name") or "")))}
    assert there | named >= set(run.returned()), sorted(set(run.returned()) - there - named)
    assert listed[-1]["lost"] == sum(int(str(p["count"])) for p in listed if p["type"] == "problem" and p["loss"]) > 0


def test_full_disk_then_killed(tmp_path: pathlib.Path, small_disk: pathlib.Path) -> None:
    place = small_disk / "here"
    place.mkdir()
    run = Stress(place, truth=tmp_path, count=400, exit="_exit", stall=5000).ready()
    run.finish()
    run.wait_for_writer()
    run.check("lossy")


def test_read_only_directory(tmp_path: pathlib.Path) -> None:
    where = tmp_path / "ro"
    where.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(where)], capture_output=True,
                             text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a read-only file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        result = subprocess.run([program("stress"), "record", str(where / "run"), str(tmp_path / "c"), "count=1"],
                                capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 3
        assert str(where) in result.stderr and "Read-only file system" in result.stderr, result.stderr
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.mark.parametrize("manners", [
    {"SHIM_SHORT": "100000"},
    {"SHIM_SHORT": "4097"},
    {"SHIM_EINTR": "2"},
    {"SHIM_SHORT": "70001", "SHIM_EINTR": "3"},
])
def test_short_and_interrupted_writes(tmp_path: pathlib.Path, manners: dict[str, str]) -> None:
    run = Stress(tmp_path, count=150, env={"LD_PRELOAD": program("fault_shim.so"), **manners}).ready()
    out, err = run.finish(300)
    assert "failures 0 close OK" in out, out + err
    assert "a thread writes instead" not in err, err
    assert "without bytes 0, missing 0" in run.check()


@pytest.mark.parametrize("failure", ["SHIM_FULL", "SHIM_FAIL"])
@pytest.mark.parametrize("after", [0, 5000, 3 * MIB])
def test_writes_fail_after_a_while(tmp_path: pathlib.Path, failure: str, after: int) -> None:
    """Also from the first byte on: the recorder may refuse to open, but nothing hangs and nothing is claimed."""
    run = Stress(tmp_path, count=100, stall=3000, env={"LD_PRELOAD": program("fault_shim.so"), failure: str(after + 1)})
    out, err = run.finish(120)
    if run.process.returncode == 3:
        assert "stress: " in err
        return
    assert run.process.returncode == 0, out + err
    assert "tensortap: " in err, "nobody was told"
    run.check("dead")
    assert verify(run.dir).returncode == 1


def test_disk_that_forgets(tmp_path: pathlib.Path) -> None:
    """Where flush promises the disk, a sync that fails is told by the calls that promised."""
    run = Stress(tmp_path, count=20, durability=1, segment=MIB,
                 env={"LD_PRELOAD": program("fault_shim.so"), "SHIM_SYNC": "1"}).ready()
    out, err = run.finish()
    assert "close E_IO" in out and "did not keep" in out, out + err
    assert "did not keep" in err, err


def test_limit_on_file_sizes(tmp_path: pathlib.Path) -> None:
    """ulimit -f: the writer is told by an error, not killed by a signal."""
    limit = 4 * MIB
    run = Stress(tmp_path, count=150, stall=5000,
                 before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))).ready()
    out, err = run.finish()
    assert run.process.returncode == 0, out + err
    assert "cannot write" in err and "starting another one" not in err, err
    run.check("lossy")
    assert verify(run.dir).returncode == 1


def test_wall_clock_goes_backwards(tmp_path: pathlib.Path) -> None:
    run = Stress(tmp_path, count=150, env={"LD_PRELOAD": program("fault_shim.so"), "SHIM_CLOCK": "1"}).ready()
    out, err = run.finish()
    assert "failures 0 close OK" in out, out + err
    assert "without bytes 0, missing 0" in run.check()


def test_nothing_is_left_in_tmp(tmp_path: pathlib.Path) -> None:
    """After a clean close only final files: no temporaries, no ring."""
    run = Stress(tmp_path, count=20).ready()
    run.finish()
    names = sorted(p.name for p in run.dir.rglob("*") if p.is_file())
    assert names == ["attempt0-000000.tap", "attempt0.json", "attempt0.sqlite", "run.json"], names
    modes = {oct(p.stat().st_mode & 0o777) for p in run.dir.rglob("*") if p.is_file()}
    assert modes == {"0o640"}, modes


if sys.platform != "linux" or os.geteuid() != 0:
    print("fault tests that mount a file system are skipped: they need root on Linux")
