"""A recording must not hold a terminal, a pipe or a parent process."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time

from faults import Stress, program


def test_ctrl_c_reaches_the_trainer_only(tmp_path: pathlib.Path) -> None:
    """SIGINT goes to the whole foreground group; the writer is in a session of its own and finishes."""
    run = Stress(tmp_path).ready()
    time.sleep(0.2)
    os.killpg(run.process.pid, signal.SIGINT)
    run.finish()
    assert run.process.returncode == -signal.SIGINT
    run.wait_for_writer()
    run.check()


def test_hang_up(tmp_path: pathlib.Path) -> None:
    run = Stress(tmp_path).ready()
    time.sleep(0.1)
    for pid in run.writers():
        os.kill(pid, signal.SIGHUP)
        os.kill(pid, signal.SIGINT)
    time.sleep(0.2)
    os.killpg(run.process.pid, signal.SIGHUP)
    run.finish()
    run.wait_for_writer()
    run.check()


def test_pipe_to_tee_ends(tmp_path: pathlib.Path) -> None:
    """The writer holds no descriptor of the producer's: tee ends when the producer does, although it was killed."""
    command = f"'{program('stress')}' record '{tmp_path}/run' '{tmp_path}/c' count=50 exit=_exit 2>&1 | tee '{tmp_path}/log'"
    start = time.monotonic()
    subprocess.run(["bash", "-c", command], timeout=30, check=True, stdout=subprocess.DEVNULL)
    assert time.monotonic() - start < 20
    assert (tmp_path / "log").read_text().startswith("ready")


def test_subprocess_run_returns(tmp_path: pathlib.Path) -> None:
    result = subprocess.run([program("stress"), "record", str(tmp_path / "run"), str(tmp_path / "c"), "count=50", "exit=_exit"],
                            capture_output=True, timeout=30, check=False)
    assert result.returncode == 0


def test_writer_holds_nothing(tmp_path: pathlib.Path) -> None:
    """Own session, root as directory, /dev/null as standard streams, only its ring and files open."""
    run = Stress(tmp_path).ready()
    time.sleep(0.2)
    (pid,) = run.writers()
    links = {name: os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    assert all(links[n] == "/dev/null" for n in ("0", "1", "2")), links
    assert not any(target.startswith(("pipe:", "socket:")) for target in links.values()), links
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid) not in (os.getsid(0), run.process.pid)
    run.kill()
    run.wait_for_writer()
