"""What the MindSpore tests share: a run as rows, bits of an array, scripts in other processes."""
import os
import pathlib
import subprocess
import sys
from typing import Any

import mindspore as ms
import numpy as np
import tensortap.mindspore as tap

Row = tuple[int, str, str, int]  # step, full name, kind, call


def rows(path: str | pathlib.Path, kind: "str | None" = None) -> "list[tuple[Row, Any]]":
    """Every record in order of saving: its key, and its value."""
    with tap.open(path) as run:
        return [((r.step, r.full_name, r.kind, r.call), r.numpy() if r.value_type == "tensor" else r.value()) for r in run.query(kind=kind)]


def keys(path: str | pathlib.Path, kind: "str | None" = None) -> "list[Row]":
    return [key for key, _ in rows(path, kind)]


def array(x: Any) -> np.ndarray:
    """A tensor's numbers; bfloat16 as its 16 bits."""
    a = x.asnumpy() if isinstance(x, ms.Tensor) else np.asarray(x)
    return a.view(np.uint16) if a.dtype.name == "bfloat16" else a


def bits(x: Any) -> "tuple[Any, ...]":
    """What must be the same for two values to be the same, NaN and -0 included."""
    a = array(x)
    return a.dtype.name, a.shape, np.ascontiguousarray(a).tobytes()


def files(where: "str | pathlib.Path" = ".") -> "list[str]":
    where = pathlib.Path(where)
    return sorted(str(path.relative_to(where)) for path in where.rglob("*.npy"))


def environment(**more: str) -> "dict[str, str]":
    env = {key: value for key, value in os.environ.items() if not key.startswith("TENSORTAP")}
    return env | {"OMP_NUM_THREADS": "2", "GLOG_v": "3"} | more


def script(text: "str | pathlib.Path", *args: str, compat: bool = False, check: bool = True, **env: str) -> "subprocess.CompletedProcess[str]":
    """A program of its own, in the current directory; MindSpore wants its source in a file."""
    path = text
    if isinstance(text, str):
        path = pathlib.Path("script_under_test.py")
        path.write_text(text)
    before = ["-m", "tensortap.compat"] if compat else []
    done = subprocess.run([sys.executable, *before, str(path), *args], capture_output=True, text=True, timeout=300, env=environment(**env))
    assert not check or done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done
