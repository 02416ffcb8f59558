"""Reading recordings: runs, their records, and the check that nothing was lost."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _core
from .._core import Mapping
from .recording import Path, _globs, _ranges

if TYPE_CHECKING:
    import numpy

__all__ = ["Mapping", "Problem", "Record", "Run", "Stats", "Verified", "open", "verify"]


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of one tensor; mean and norm are over its finite values."""

    count: int
    nan: int
    pos_inf: int
    neg_inf: int
    zero: int
    min: int | float
    max: int | float
    mean: float
    norm: float


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing ``verify`` found."""

    kind: str
    is_loss: bool
    rank: int
    attempt: int
    step: int
    name: str
    path: str
    count: int
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What ``verify`` found: ``ok`` when nothing was lost."""

    ok: bool
    records: int
    bytes: int
    lost: int
    rules: int
    not_named: int
    problems: list[Problem]

    def __bool__(self) -> bool:
        return self.ok


class Record(_core.Record):
    """One saved leaf: its key, its statistics, and its value as a numpy array, a torch tensor or a Python value."""

    __slots__ = ()

    @property
    def stats(self) -> Stats | None:
        """The statistics, or None where none were kept."""
        return None if self._stats is None else Stats(*self._stats)

    @property
    def full_name(self) -> str:
        """Name and path inside a nested value: ``"cache.0.key"``."""
        return f"{self.name}.{self.path}" if self.path else self.name

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """The value, mapped from its file without a copy and read-only.

        bfloat16 and the 8-bit floats come as ml_dtypes' types, or as float32 where ml_dtypes is not installed;
        complex32 as complex64 and packed float4 as float32.
        """
        import numpy as np

        mapping = self.map()
        array = np.asarray(mapping)
        if self.dtype in ("complex32", "float4_e2m1fn_x2"):
            return _converted(mapping)
        if array.dtype.name == self.dtype or array.dtype.kind not in "u" or self.dtype.startswith("uint"):
            return array
        try:
            import ml_dtypes
        except ImportError:
            return _converted(mapping)
        if not hasattr(ml_dtypes, self.dtype):
            return _converted(mapping)
        return array.view(getattr(ml_dtypes, self.dtype))

    def torch(self, *, copy: bool = True) -> Any:
        """The value as a torch tensor, in every dtype torch has.

        ``copy=False`` maps the file instead: no bytes are read until they are used, and writing to the tensor ends
        the process, so clone it first.
        """
        import numpy as np
        import torch

        mapping = self.map()
        dtype = getattr(torch, self.dtype)
        raw = np.asarray(mapping)
        if raw.size == 0:
            return torch.empty(self.shape, dtype=dtype)
        flat = raw.reshape(-1).view(np.uint8)
        if copy:
            return torch.from_numpy(flat.copy()).view(dtype).reshape(self.shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the array is read-only: said above
            return torch.from_numpy(flat).view(dtype).reshape(self.shape)

    def value(self) -> Any:
        """What was saved: an array for a tensor, else the number, text or empty container itself."""
        kind = self.value_type
        if kind == "none":
            return None
        if kind in ("list", "tuple", "dict"):
            return {"list": [], "tuple": (), "dict": {}}[kind]
        if kind in ("tensor", "meta"):
            return self.numpy()
        data = self.map().tobytes()
        if kind == "str":
            return int(data) if self.type_name == "int" else data.decode("utf-8", "replace")
        if kind == "bytes":
            return data
        formats = {"bool": "<?", "int": "<q", "float": "<d", "complex": "<dd"}
        numbers = struct.unpack(formats[kind], data)
        return complex(*numbers) if kind == "complex" else numbers[0]

    def __repr__(self) -> str:
        call = f" call {self.call}" if self.call else ""
        what = f"{self.dtype}{list(self.shape)}" if self.dtype else self.value_type
        return f"<Record {self.full_name!r} step {self.step}{call} rank {self.rank} {self.kind} {what}>"


def _converted(mapping: Mapping) -> numpy.ndarray[Any, Any]:
    import numpy as np

    to = "complex64" if mapping.dtype == "complex32" else "float32"
    flat = np.frombuffer(mapping.convert(to), dtype=to)
    shape = mapping.shape
    if mapping.dtype == "float4_e2m1fn_x2":
        shape = (*shape[:-1], shape[-1] * 2) if shape else (2,)
    return flat.reshape(shape)


class Run(_core.Run):
    """A recording, finished or growing. Iterating gives its records; ``run["x"]`` those of one name."""

    __slots__ = ()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def query(
        self,
        name: str | list[str] | tuple[str, ...] | None = None,
        step: str | int | range | list[int] | tuple[int, ...] | None = None,
        rank: str | int | range | list[int] | tuple[int, ...] | None = None,
        kind: str | None = None,
        *,
        attempt: int | None = None,
        incomplete: bool = False,
    ) -> Iterator[Record]:
        """Records by name globs, steps, ranks and kind, in order of rank, attempt and saving.

        ``attempt`` None: the newest of each rank; -2: all. ``incomplete``: also what was announced and never came.
        """
        cursor: Iterator[Record] = self.cursor(
            None if name is None else _globs(name),
            None if step is None else _ranges(step),
            None if rank is None else _ranges(rank),
            kind,
            -1 if attempt is None else attempt,
            incomplete,
            Record,
        )
        return cursor

    def __iter__(self) -> Iterator[Record]:
        return self.query()

    def __len__(self) -> int:
        return self.count()

    def __getitem__(self, name: str) -> list[Record]:
        records = [record for record in self.query(_literal(name)) if record.name == name]
        if not records:
            raise KeyError(f"{name}: no record of this name; tensortap ls shows what is there")
        return records

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(record.name == name for record in self.query(_literal(name)))

    def names(self) -> list[str]:
        """The names in it, in order of first appearance."""
        return list(dict.fromkeys(record.name for record in self))

    def verify(self, *, quick: bool = False, rules: bool = False) -> Verified:
        """Check that everything asked for is there and intact; ``quick`` does not read the bytes."""
        ok, records, size, lost, left_out, not_named, problems = self._verify(quick, rules)
        return Verified(ok, records, size, lost, left_out, not_named, [Problem(*problem) for problem in problems])

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row per record: key, dtype, shape and statistics."""
        import pandas

        columns = ("rank", "attempt", "step", "name", "path", "call", "kind", "dtype", "shape", "payload_bytes")
        rows = []
        for record in self:
            row = {column: getattr(record, column) for column in columns}
            rows.append(row | (asdict(record.stats) if record.stats else {}))
        return pandas.DataFrame(rows)


def _literal(name: str) -> str | None:
    """A glob that matches this name and little else; None, which matches all, where there is none."""
    if not name or "|" in name:
        return None
    return "".join("\\" + c if c in "\\*?[!" else c for c in name)


def open(path: Path) -> Run:
    """Open any recording: a run directory, or a file or directory of a layout we know.

    >>> import tempfile, tensortap as tap
    >>> d = tempfile.mkdtemp() + "/run"
    >>> with tap.record(d):
    ...     tap.save({"loss": 0.5}, "out")
    >>> with tap.open(d) as run:
    ...     [(record.full_name, record.value()) for record in run]
    [('out.loss', 0.5)]
    """
    return Run(os.fspath(path))


def verify(path: Path, *, quick: bool = False, rules: bool = False) -> Verified:
    """Check a recording: true when every save is there and intact.

    >>> import tempfile, tensortap as tap
    >>> d = tempfile.mkdtemp() + "/run"
    >>> with tap.record(d):
    ...     tap.save(1.5, "x")
    >>> bool(tap.verify(d))
    True
    """
    with open(path) as run:
        return run.verify(quick=quick, rules=rules)
