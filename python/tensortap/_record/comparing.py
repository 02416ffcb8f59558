"""Comparing recordings: which operation is the first that is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from .. import _core
from .reading import Stats
from .recording import Path, _globs, _ranges

__all__ = ["Comparison", "Difference", "Match", "Place", "Side", "Verdict", "compare"]

CLASSES = _core.MATCH_CLASSES
BAD = tuple(name for name, number in CLASSES.items() if number >= CLASSES["drift"])


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a tensor and the values that lie there."""

    index: tuple[int, ...]
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """What tells two tensors apart. Pairs are of A and B; errors are over the pairs of finite values."""

    count: int
    different: int
    unlike: int
    beyond: int
    nan: tuple[int, int]
    pos_inf: tuple[int, int]
    neg_inf: tuple[int, int]
    first: Place | None
    worst: Place | None
    max_abs: float
    mean_abs: float
    max_rel: float
    mean_rel: float
    max_ulp: float
    norm: float
    norm_a: float
    norm_b: float
    cosine: float
    percentiles: tuple[float, float, float]
    bits: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Side:
    """The record of one side."""

    name: str
    step: int
    attempt: int
    seq: int
    dtype: str
    shape: tuple[int, ...]
    stats: Stats | None
    hash: int | None
    source: str
    line: int
    module: str
    graph: str
    node: str
    file: str


@dataclass(frozen=True, slots=True)
class Match:
    """A record of A and its record of B, and how they stand to each other."""

    id: int
    what: str
    evidence: str
    allowed: bool
    recomputed: bool
    rank: int
    call: int
    kind: str
    replay: int
    path: str
    unit: float
    ratio: float
    reason: str
    a: Side | None
    b: Side | None
    difference: Difference | None

    @property
    def name(self) -> str:
        """The name in A, or in B where A has no such record."""
        side = self.a or self.b
        return side.name if side else ""

    @property
    def step(self) -> int:
        """The step in A, or in B where A has no such record."""
        side = self.a or self.b
        return side.step if side else -1

    @property
    def agrees(self) -> bool:
        """Equal, or no further apart than rounding and noise explain; or it was allowed."""
        return self.allowed or self.what not in BAD

    def __str__(self) -> str:
        label = f"{self.name}[{self.path}]" if self.path else self.name
        text = f"{self.what}: {label} {self.kind}, step {self.step}, rank {self.rank}"
        if self.difference and self.difference.different:
            text += f", max |A-B| {self.difference.max_abs:.2g}"
        if 0 < self.ratio < float("inf"):
            text += f", {self.ratio:.3g}x rounding"
        return text + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What diverges first, and what that means: ``blame`` is 'none', 'unordered', 'between', 'operation', 'input' or
    'first'."""

    differs: bool
    blame: str
    first: int
    before: int
    inputs: tuple[int, int]
    weights: tuple[int, int]
    text: str


def _place(row: tuple[Any, ...] | None) -> Place | None:
    return None if row is None else Place(*row)


def _side(row: dict[str, Any] | None) -> Side | None:
    if row is None:
        return None
    stats = row.pop("stats")
    return Side(stats=None if stats is None else Stats(*stats), **row)


def _difference(row: dict[str, Any] | None) -> Difference | None:
    if row is None:
        return None
    return Difference(first=_place(row.pop("first")), worst=_place(row.pop("worst")), **row)


def _match(row: dict[str, Any]) -> Match:
    return Match(a=_side(row.pop("a")), b=_side(row.pop("b")), difference=_difference(row.pop("difference")), **row)


class Comparison:
    """The result of ``compare``. It is true when A and B agree, and printing it says what does not."""

    def __init__(self, core: _core.Comparison) -> None:
        self._core = core
        self.verdict = Verdict(**core.verdict())
        summary = core.summary()
        self.paths: tuple[str, str] = summary["paths"]
        self.layouts: tuple[str, str] = summary["layouts"]
        self.order: str = summary["order"]
        self.records: tuple[int, int] = summary["records"]
        self.classes: dict[str, int] = summary["classes"]
        self.allowed: int = summary["allowed"]
        self.by_stats: int = summary["by_stats"]
        self.unread: int = summary["unread"]
        self.factor: float = summary["factor"]

    @staticmethod
    def open(path: Path) -> Comparison:
        """A result that was kept with ``output=`` or ``tensortap compare -o``."""
        return Comparison(_core.compare_open(os.fspath(path)))

    def __bool__(self) -> bool:
        return not self.verdict.differs

    @property
    def first(self) -> Match | None:
        """The first divergence, or None."""
        return None if self.verdict.first < 0 else _match(self._core.match(self.verdict.first))

    @property
    def before(self) -> Match | None:
        """What agrees just before it, or the input that differs already; or None."""
        return None if self.verdict.before < 0 else _match(self._core.match(self.verdict.before))

    def matches(self, what: str | Sequence[str] | None = None, name: str | None = None) -> Iterator[Match]:
        """Matches in causal order: all, or of some classes (``'bad'``: drift and worse) and names (globs)."""
        wanted = BAD if what == "bad" else CLASSES if what is None else (what,) if isinstance(what, str) else what
        for one in wanted:
            if one not in CLASSES:
                raise ValueError(f"class is one of {', '.join(CLASSES)} or 'bad', not {one!r}")
        bits = sum(1 << CLASSES[one] for one in set(wanted))
        return map(_match, self._core.matches(bits, name))

    def __iter__(self) -> Iterator[Match]:
        return self.matches()

    def __str__(self) -> str:
        counts = ", ".join(f"{what} {count}" for what, count in self.classes.items() if count)
        return f"{self.verdict.text}\nA {self.paths[0]}, B {self.paths[1]}: {counts or 'nothing to compare'}"

    def __repr__(self) -> str:
        return f"<Comparison {self}>"


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _paths(value: Path | Sequence[Path]) -> tuple[str, ...]:
    values = [value] if isinstance(value, str | PurePath) else list(value)  # type: ignore[arg-type]
    return tuple(os.fspath(path) for path in values)


def compare(
    a: Path,
    b: Path,
    *,
    name: str | list[str] | tuple[str, ...] | None = None,
    steps: str | int | range | list[int] | tuple[int, ...] | None = None,
    ranks: str | int | range | list[int] | tuple[int, ...] | None = None,
    kind: str | None = None,
    shift: int = 0,
    tol: str | Sequence[str] = (),
    noise: Path | Sequence[Path] = (),
    allow: str | list[str] | tuple[str, ...] | None = None,
    precision: str | None = None,
    factor: float = 4.0,
    exact: bool = False,
    threads: int = 0,
    output: Path | None = None,
) -> Comparison:
    """Compare recording ``b`` with recording ``a`` and find the first operation that is wrong.

    ``tol`` are rules such as ``"attn.*: rel<=1e-3 or abs<=1e-5"``, ``noise`` repetitions of ``a``, ``allow`` globs of
    names that may differ; step n of ``a`` stands beside step n + ``shift`` of ``b``; ``exact`` asks for the same bits.
    ``docs/compare.md`` has the rest.

    >>> import tempfile, numpy, tensortap as tap
    >>> place = tempfile.mkdtemp()
    >>> for run, wrong in (("a", 0), ("b", 1e-3)):
    ...     with tap.record(f"{place}/{run}"):
    ...         x = numpy.linspace(0, 1, 8, dtype="float32")
    ...         tap.save(x, "x")
    ...         tap.save(numpy.exp(x) + numpy.float32(wrong), "y")
    >>> result = tap.compare(f"{place}/a", f"{place}/b")
    >>> bool(result), result.first.name, result.before.name, result.classes["wrong"]
    (False, 'y', 'x', 1)
    """
    if kind is not None and kind not in _core.KINDS:
        raise ValueError(f"kind is one of {', '.join(_core.KINDS)}, not {kind!r}")
    core = _core.compare_runs(
        os.fspath(a),
        os.fspath(b),
        None if name is None else _globs(name),
        None if steps is None else _ranges(steps),
        None if ranks is None else _ranges(ranks),
        -1 if kind is None else _core.KINDS[kind],
        shift,
        _texts(tol),
        _paths(noise),
        None if allow is None else _globs(allow),
        precision,
        factor,
        exact,
        threads,
        None if output is None else os.fspath(output),
    )
    return Comparison(core)
