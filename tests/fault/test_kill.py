"""kill -9 and friends: a save that returned is on disk, whoever dies."""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest
from faults import COMMAND, Stress, verify, wait_until

KILLS = int(os.environ.get("TENSORTAP_KILLS", "200"))


@pytest.mark.slow
def test_producer_killed_at_random_moments(tmp_path: pathlib.Path) -> None:
    """Four threads, sizes up to three times the ring, killed at 200 random moments: nothing that returned is lost."""
    dice = random.Random(20240607)
    saved = 0
    for round_number in range(KILLS):
        where = tmp_path / str(round_number)
        where.mkdir()
        run = Stress(where, seed=round_number + 1).ready()
        time.sleep(dice.random() * 0.25)
        run.kill()
        run.wait_for_writer()
        saved += int(run.check().split("returned ")[1].split(":")[0])
        result = verify(run.dir)
        assert result.returncode in (0, 1), result.stderr  # 1: something was being written when it died
        shutil.rmtree(where)
    assert saved > KILLS  # it did record


@pytest.mark.slow
@pytest.mark.parametrize("keys", [
    {"segment": 1 << 20},
    {"segment": 1 << 20, "last": 2, "step": 20},
    {"segment": 4096, "sleep": 300},
])
def test_producer_killed_with_many_segments(tmp_path: pathlib.Path, keys: dict[str, int]) -> None:
    """Rotation, extents in older segments and deleted ones: the same promise. With last= the oldest may be gone."""
    dice = random.Random(99)
    for round_number in range(max(KILLS // 10, 4)):
        where = tmp_path / str(round_number)
        where.mkdir()
        run = Stress(where, seed=round_number + 1, **keys).ready()
        time.sleep(dice.random() * 0.4)
        run.kill()
        run.wait_for_writer()
        run.check("last" if "last" in keys else "")
        assert verify(run.dir).returncode in (0, 1)
        shutil.rmtree(where)


@pytest.mark.parametrize("how", ["_exit", "abort", "segv"])
def test_producer_ends_without_closing(tmp_path: pathlib.Path, how: str) -> None:
    run = Stress(tmp_path, count=60, exit=how).ready()
    run.finish()
    run.wait_for_writer()
    assert "without bytes 0, missing 0" in run.check()


@pytest.mark.parametrize("keys", [
    {"sleep": 200},
    {"sleep": 100, "segment": 1 << 20},
    {"sleep": 100, "segment": 1 << 20, "last": 3, "step": 20},
])
def test_writer_killed_again_and_again(tmp_path: pathlib.Path, keys: dict[str, int]) -> None:
    """A new writer takes the ring over and nothing is lost."""
    run = Stress(tmp_path, **keys).ready()
    killed = 0
    for _ in range(8):
        wait_until(lambda: run.writers(), what="a writer")
        time.sleep(0.15)
        for pid in run.writers():
            os.kill(pid, signal.SIGKILL)
            killed += 1
        time.sleep(0.35)
    run.process.send_signal(signal.SIGTERM)
    out, err = run.finish()
    assert killed >= 8
    assert "failures 0 close OK" in out, out + err
    assert "starting another one" in err
    assert "without bytes 0, missing 0" in run.check("last" if "last" in keys else "")
    result = verify(run.dir)
    assert result.returncode == 0, result.stdout + result.stderr


def test_writer_told_to_stop_drains_and_is_replaced(tmp_path: pathlib.Path) -> None:
    run = Stress(tmp_path, sleep=200).ready()
    time.sleep(0.3)
    for pid in run.writers():
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.5)
    run.process.send_signal(signal.SIGTERM)
    out, err = run.finish()
    assert "failures 0 close OK" in out, out + err
    assert "without bytes 0, missing 0" in run.check()


def test_writer_and_producer_killed_together_says_so(tmp_path: pathlib.Path) -> None:
    """Memory rings die with both; verify must say that the recording has no end, never that all is well."""
    run = Stress(tmp_path).ready()
    time.sleep(0.3)
    run.process.send_signal(signal.SIGSTOP)
    for pid in run.writers():
        os.kill(pid, signal.SIGKILL)
    run.kill()
    run.wait_for_writer()  # a killed process holds its files a moment longer
    result = verify(run.dir)
    assert result.returncode == 1
    assert "recover" in result.stdout + result.stderr


def test_no_writer_to_be_found(tmp_path: pathlib.Path) -> None:
    run = Stress(tmp_path, count=100, writer="/nonexistent/tensortap").ready()
    out, err = run.finish()
    assert "failures 0 close OK" in out, out + err
    assert err.count("a thread writes instead") == 1, err
    assert "without bytes 0, missing 0" in run.check()


def test_writer_killed_and_none_can_be_started(tmp_path: pathlib.Path) -> None:
    """The producer says so once and keeps training; nothing is lost."""
    copy = tmp_path / "tensortap"
    shutil.copy2(COMMAND, copy)
    run = Stress(tmp_path, sleep=200, writer=copy).ready()
    time.sleep(0.2)
    copy.unlink()
    for pid in run.writers():
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    run.process.send_signal(signal.SIGTERM)
    out, err = run.finish()
    assert "failures 0 close OK" in out, out + err
    assert err.count("a thread writes instead") == 1, err
    assert "without bytes 0, missing 0" in run.check()


def test_ring_file_and_recover(tmp_path: pathlib.Path) -> None:
    """With the ring as a file even the death of both loses nothing: `tensortap recover` drains it."""
    dice = random.Random(7)
    for round_number in range(10):
        where = tmp_path / str(round_number)
        where.mkdir()
        run = Stress(where, file=1, seed=round_number + 1).ready()
        time.sleep(0.05 + dice.random() * 0.2)
        run.process.send_signal(signal.SIGSTOP)  # so that it cannot start another writer first
        for pid in run.writers():
            os.kill(pid, signal.SIGKILL)
        run.kill()
        wait_until(lambda run=run: not run.writers(), what="the writer's end")
        result = subprocess.run([str(COMMAND), "recover", str(run.dir)], capture_output=True, text=True, timeout=60,
                                check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        run.check()
        assert not list(run.dir.rglob("*.ring"))


@pytest.mark.parametrize("whom", ["producer", "writer"])
def test_msprobe_lists_every_returned_save(tmp_path: pathlib.Path, whom: str) -> None:
    """Files left to the writer, statistics in a collector's memory: a save that returned has both, whoever dies."""
    dice = random.Random(5)
    for round_number in range(4):
        where = tmp_path / str(round_number)
        where.mkdir()
        run = Stress(where, layout="msprobe", seed=round_number + 1, step=40, sleep=500, **{"async": 1}).ready()
        time.sleep(0.2 + dice.random() * 0.4)
        if whom == "writer":
            for _ in range(3):
                for pid in run.writers():
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.3)
            run.process.send_signal(signal.SIGTERM)
            out, err = run.finish()
            assert "failures 0 close OK" in out, out + err
        else:
            run.kill()
        wait_until(lambda run=run: not run.writers(), what="the writer's end")
        found = {}
        for path in run.dir.rglob("debug.json"):
            for key, value in json.loads(path.read_text())["data"].items():
                file = value.get("data_name", "")  # an empty tensor has none
                found[key.removesuffix(".0.debug")] = path.parent / "dump_tensor_data" / file
        returned = run.returned()
        assert len(returned) > 20
        missing = [name for name in returned if name not in found or not found[name].exists()]
        assert not missing, (len(returned), missing[:10])


def test_recover_of_damaged_rings(tmp_path: pathlib.Path) -> None:
    """A ring file with anything in it: no crash, no endless loop, nothing outside the recording."""
    run = Stress(tmp_path, file=1).ready()
    time.sleep(0.3)
    run.process.send_signal(signal.SIGSTOP)
    for pid in run.writers():
        os.kill(pid, signal.SIGKILL)
    run.kill()
    wait_until(lambda: not run.writers(), what="the writer's end")
    dice = random.Random(3)
    for round_number in range(20):
        copy = tmp_path / "copy" / "run"
        shutil.copytree(run.dir, copy)
        (ring,) = copy.rglob("*.ring")
        with ring.open("r+b") as file:
            for _ in range(dice.choice([1, 5, 50])):
                file.seek(dice.randrange(dice.choice([200, 26_000, 100_000])))
                file.write(dice.choice([dice.randbytes(8), b"\0" * 8, b"\xff" * 8, b"../../.."]))
        result = subprocess.run([str(COMMAND), "recover", str(copy)], capture_output=True, text=True, timeout=60,
                                check=False)
        assert result.returncode in (0, 1, 2), (round_number, result)
        assert verify(copy).returncode in (0, 1, 2), round_number
        assert sorted(p.name for p in (tmp_path / "copy").iterdir()) == ["run"]
        shutil.rmtree(tmp_path / "copy")
