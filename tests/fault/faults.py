"""What the fault tests share: the built programs, starting, killing and checking them."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
import uuid
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TENSORTAP_BUILD", ROOT / "build" / "dev"))
COMMAND = BUILD / "tensortap"
RING = 1 << 20


def program(name: str) -> str:
    path = BUILD / name
    assert path.exists(), f"{path} is not built; run: make build"
    return str(path)


class Stress:
    """A running `stress record` and the recording it makes."""

    def __init__(self, tmp: pathlib.Path, *, truth: pathlib.Path | None = None, env: dict[str, str] | None = None,
                 before: Callable[[], None] | None = None, **keys: object) -> None:
        self.dir = tmp / "run"
        self.truth = (truth or tmp) / "truth"
        self.truth.touch()
        os.truncate(self.truth, 1 << 26)  # sparse; before any limit on sizes
        self.tag = uuid.uuid4().hex
        self.keys = {"ring": RING, "seed": 1, **keys}
        arguments = [f"{k}={v}" for k, v in self.keys.items()]
        self.process = subprocess.Popen(
            [program("stress"), "record", str(self.dir), str(self.truth), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "TAP_TEST_TAG": self.tag, **(env or {})}, preexec_fn=before,
        )

    def ready(self) -> Stress:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise AssertionError(f"did not start: {line}{self.process.stderr.read()}")  # type: ignore[union-attr]
        return self

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def finish(self, timeout: float = 120) -> tuple[str, str]:
        return self.process.communicate(timeout=timeout)

    def writers(self) -> list[int]:
        """Processes of the writer that belong to this run, by an environment variable they inherited."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if b"__writer" in (entry / "cmdline").read_bytes() and \
                        self.tag.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def wait_for_writer(self, timeout: float = 60) -> None:
        result = subprocess.run([str(COMMAND), "wait", "--timeout", str(timeout), str(self.dir)],
                                capture_output=True, text=True, timeout=timeout + 10, check=False)
        assert result.returncode == 0, result.stdout + result.stderr

    def returned(self) -> list[str]:
        """Names of the saves that had returned."""
        result = subprocess.run([program("stress"), "returned", str(self.truth)], capture_output=True, text=True, check=True)
        return result.stdout.split()

    def check(self, mode: str = "") -> str:
        """mode: "", "lossy", "dead" or "last", see tests/stress/load.c."""
        result = subprocess.run([program("stress"), "check", str(self.dir), str(self.truth), mode], capture_output=True,
                                text=True, timeout=300, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


def wait_until(condition, timeout: float = 30, what: str = "it") -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {timeout} s"
        time.sleep(0.01)


def verify(directory: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMMAND), "verify", str(directory)], capture_output=True, text=True, timeout=300,
                          check=False)
