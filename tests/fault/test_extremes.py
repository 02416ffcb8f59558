"""Names, numbers and sizes at the edge."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

import pytest
from faults import COMMAND, Stress, program, verify


def run_names(tmp_path: pathlib.Path, layout: str, count: int) -> pathlib.Path:
    directory = tmp_path / "deep" / "run"
    result = subprocess.run([program("fault_names"), str(directory), layout, str(count)], capture_output=True, text=True,
                            timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return directory


def test_names_of_every_kind(tmp_path: pathlib.Path) -> None:
    directory = run_names(tmp_path, "native", 100_000)
    listed = subprocess.run([str(COMMAND), "ls", "--json", str(directory)], capture_output=True, timeout=300, check=True)
    names = [json.loads(line).get("name") for line in listed.stdout.decode("utf-8", "surrogateescape").splitlines()]
    names = [name for name in names if name is not None]
    assert len(names) == 100_000 + 3 + 15
    assert len(set(names)) == len(names)
    assert max(len(name) for name in names) == 10_000
    assert "../../escape" in names and "层.注意力" in names and "" in names
    assert verify(directory).returncode == 0


@pytest.mark.parametrize("layout", ["msprobe", "troubleshooter", "torch_npu", "mindspore", "torchair"])
def test_odd_names_stay_inside(tmp_path: pathlib.Path, layout: str) -> None:
    """Nothing is ever written outside the chosen directory, whatever the name."""
    directory = run_names(tmp_path, layout, 20)
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and directory not in p.parents]
    assert outside == []
    assert [p for p in directory.rglob("*") if p.is_file()]


def test_two_processes_one_directory(tmp_path: pathlib.Path) -> None:
    """The second is refused by name of the first; with append each has files of its own."""
    first = Stress(tmp_path, sleep=500).ready()
    second = subprocess.run([program("stress"), "record", str(first.dir), str(tmp_path / "c2"), "count=5"],
                            capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 3
    assert str(first.dir) in second.stderr and "append" in second.stderr, second.stderr
    assert str(first.process.pid) in second.stderr, second.stderr
    third = subprocess.run([program("stress"), "record", str(first.dir), str(tmp_path / "c3"), "count=20", "mode=1"],
                           capture_output=True, text=True, timeout=60, check=False)
    assert "failures 0 close OK" in third.stdout, third.stdout + third.stderr
    first.kill()
    first.wait_for_writer()
    assert {p.name for p in first.dir.glob("rank0/*.json")} == {"attempt0.json", "attempt1.json"}
    assert verify(first.dir).returncode in (0, 1)


def test_many_processes_race_for_one_directory(tmp_path: pathlib.Path) -> None:
    """Ten open at once with append: ten attempts, no shared file."""
    command = [program("stress"), "record", str(tmp_path / "run")]
    racing = [subprocess.Popen([*command, str(tmp_path / f"c{i}"), "count=10", "threads=1", "mode=1"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for i in range(10)]
    for process in racing:
        out, err = process.communicate(timeout=120)
        assert "failures 0 close OK" in out, out + err
    assert len(list((tmp_path / "run" / "rank0").glob("attempt*.json"))) == 10
    assert verify(tmp_path / "run").returncode == 0


@pytest.mark.slow
def test_a_tensor_of_five_gibibytes(tmp_path: pathlib.Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    if free < 8 << 30:
        pytest.skip(f"needs 8 GiB of free disk, {free >> 30} GiB are free")
    result = subprocess.run([program("fault_huge"), str(tmp_path / "run"), "5"], capture_output=True, text=True,
                            timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "save OK close OK" in result.stdout and "wrong 0" in result.stdout
    assert verify(tmp_path / "run").returncode == 0
    shutil.rmtree(tmp_path / "run")
