"""What was deleted from a recording of our own is listed: ranks, attempts, segments, rows of the index."""
import pathlib
import shutil
import sqlite3
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tensortap as tap


def record(where: pathlib.Path, rank: int = 0, world: int = 1, count: int = 3, **options: Any) -> None:
    with tap.record(where, rank=rank, world_size=world, **({"mode": "append"} | options)) as recorder:
        for i in range(count):
            recorder.save(np.arange(4) + i, f"x{i}")


def listed(where: pathlib.Path) -> list[tuple[str, int, int]]:
    verified = tap.verify(where)
    assert verified.ok is (not verified.problems)
    return [(p.kind, p.rank, p.attempt) for p in verified.problems]


def test_a_rank_that_is_not_there(tmp_path: pathlib.Path) -> None:
    for rank in range(4):
        record(tmp_path / "a", rank, 4)
    assert listed(tmp_path / "a") == []
    for gone in range(4):
        shutil.copytree(tmp_path / "a", tmp_path / f"{gone}")
        shutil.rmtree(tmp_path / f"{gone}" / f"rank{gone}")
        assert listed(tmp_path / f"{gone}") == [("missing", gone, 0)]
    shutil.rmtree(tmp_path / "3/rank1")
    assert listed(tmp_path / "3") == [("missing", 1, 0), ("missing", 3, 0)]
    shutil.rmtree(tmp_path / "3/rank0")
    assert listed(tmp_path / "3") == [("missing", 0, 0), ("missing", 3, 0)]  # 0 and 1 are one line
    assert listed(tmp_path / "a/rank2") == []  # one rank was asked for


def test_ranks_that_were_not_to_be_recorded_are_no_loss(tmp_path: pathlib.Path) -> None:
    for rank in range(8):
        record(tmp_path / "a", rank, 8, ranks="0|3-4")
    assert sorted(path.name for path in (tmp_path / "a").glob("rank*")) == ["rank0", "rank3", "rank4"]
    assert listed(tmp_path / "a") == []
    shutil.rmtree(tmp_path / "a/rank3")
    assert listed(tmp_path / "a") == [("missing", 3, 0)]
    for rank in range(3):
        record(tmp_path / "b", rank, 3, ranks="|".join(map(str, [0, 1, *range(5, 90)])))
    assert listed(tmp_path / "b") == []  # the option is too long to be kept: nothing is known


def test_an_attempt_that_was_deleted(tmp_path: pathlib.Path) -> None:
    for _ in range(3):
        for rank in range(2):
            record(tmp_path / "a", rank, 2)
    assert listed(tmp_path / "a") == []
    for gone in range(3):
        shutil.copytree(tmp_path / "a", tmp_path / f"{gone}")
        for path in (tmp_path / f"{gone}/rank1").glob(f"attempt{gone}[.-]*"):
            path.unlink()
        assert listed(tmp_path / f"{gone}") == [("missing", 1, gone)]
    record(tmp_path / "a", 0, 1)  # a smaller job came later
    assert listed(tmp_path / "a") == []
    for rank in range(2):
        record(tmp_path / "a", rank, 2, mode="replace")
    assert listed(tmp_path / "a") == []


def test_segments_that_were_deleted(tmp_path: pathlib.Path) -> None:
    record(tmp_path / "a", count=400, segment_bytes=1 << 14)
    segments = sorted((tmp_path / "a/rank0").glob("*.tap"))
    assert len(segments) > 5 and listed(tmp_path / "a") == []
    for some in (segments[:1], segments[-1:], segments[2:4], segments):
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        for path in some:
            (tmp_path / "b/rank0" / path.name).unlink()
        verified = tap.verify(tmp_path / "b")
        with tap.open(tmp_path / "a") as run:
            lost = sum(r.file in {f"rank0/{path.name}" for path in some} for r in run)
        assert verified.lost == lost > 0
        assert {p.kind for p in verified.problems} == {"missing"}


@pytest.mark.parametrize("where", ["seq = 5", "seq % 7 = 0", "seq < 3", "seq > 36", "1"])
def test_rows_that_were_removed_from_the_index(tmp_path: pathlib.Path, where: str) -> None:
    record(tmp_path / "a", count=40)
    index = tmp_path / "a/rank0/attempt0.sqlite"
    assert listed(tmp_path / "a") == []
    database = sqlite3.connect(index)
    gone = database.execute(f"DELETE FROM record WHERE {where}").rowcount
    database.commit()
    database.close()
    with tap.open(tmp_path / "a") as run:
        assert len(list(run)) == 40 - gone  # what ls shows
    (problem,) = tap.verify(tmp_path / "a").problems
    assert problem.file == "rank0/attempt0.sqlite" and f" {gone} " in problem.reason
    subprocess.run([pathlib.Path(sys.executable).parent / "tensortap", "index", tmp_path / "a"], check=True, capture_output=True)
    assert listed(tmp_path / "a") == []
    with tap.open(tmp_path / "a") as run:
        assert len(list(run)) == 40


@pytest.mark.parametrize("name", ["run.json", "rank0/attempt0.json", "rank0/attempt0.sqlite"])
def test_a_file_that_is_cut_or_gone_takes_no_value_with_it(tmp_path: pathlib.Path, name: str) -> None:
    record(tmp_path / "a", count=20)
    file = tmp_path / "a" / name
    whole = file.read_bytes()
    for size in [*range(0, len(whole) - 1, max(1, len(whole) // 50)), None]:
        if size is None:
            file.unlink()
        else:
            file.write_bytes(whole[:size])
        with tap.open(tmp_path / "a") as run:
            assert [(r.name, r.numpy().tolist()) for r in run] == [(f"x{i}", [i, i + 1, i + 2, i + 3]) for i in range(20)], size
        problems = tap.verify(tmp_path / "a").problems
        assert [p.file for p in problems] == ([name] if name.endswith(".json") else []), size


@pytest.mark.parametrize("layout", ["msprobe", "mindspore", "troubleshooter"])
def test_a_damaged_journal_is_one_finding_among_others(tmp_path: pathlib.Path, layout: str) -> None:
    where = tmp_path / "a"
    record(where, layout=layout)
    value = next(path for path in sorted(where.rglob("*")) if path.suffix in {".npy", ".pt"})
    value.write_bytes(value.read_bytes()[:-5])
    for name in ("rank7.1", "rank8.2"):
        (where / ".tensortap" / name).mkdir(parents=True)
        (where / ".tensortap" / name / "attempt0.lost").write_bytes(b"#" * 65536)
    problems = tap.verify(where).problems
    assert any(str(problem.file).endswith(value.name) for problem in problems)
    assert sum("is damaged: what was lost cannot be told" in problem.reason for problem in problems) == 1
