"""Opening and closing the process's recorder, by call or by environment variables."""

from __future__ import annotations

import atexit
import json
import os
import re
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple

from .. import _core
from . import state

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

Path = str | os.PathLike[str]


class Counts(NamedTuple):
    """What a recorder took, left out and lost so far."""

    saved: int
    saved_bytes: int
    filtered: int
    stats_only: int
    dropped: int
    ring_bytes: int
    ring_used: int
    written_bytes: int
    writer_pid: int


class Recorder(_core.Recorder):
    """An open recorder; ``record`` makes it. Leaving it as a context manager closes it."""

    __slots__ = ("__weakref__", "_config", "_config_seen", "directory")
    directory: str
    _config: str | None
    _config_seen: tuple[int, int] | None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tensortap.Recorder {self.directory!r}{' closed' if self.closed else ''}>"

    def close(self) -> None:
        """End the recording; after it all files are final. What was lost is said, not raised: ``verify`` lists it."""
        try:
            super().close()
        except _core.Error as error:
            if error.args[1:] != ("E_LOST",):
                raise
            _core.say(str(error.args[0]))
        finally:
            state.recording = _core.current() is not None

    def pause(self) -> None:
        """Make saves do nothing until ``resume``."""
        self.set_enabled(False)

    def resume(self) -> None:
        """Record again after ``pause``."""
        self.set_enabled(True)

    def numbers(self) -> Counts:
        """What was taken, left out and lost so far."""
        return Counts(**self.counts())


_open: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _choice(option: str, value: str, table: dict[str, int]) -> int:
    try:
        return table[value]
    except KeyError:
        raise ValueError(f"{option} is one of {', '.join(table)}, not {value!r}") from None


def _size(option: str, value: int | str) -> int:
    if isinstance(value, int):
        return value
    match = _SIZE.fullmatch(value)
    if match is None:
        raise ValueError(f"{option} is a number of bytes such as 1000000, '512M' or '20G', not {value!r}")
    return int(float(match[1]) * (1 << _UNITS[match[2].lower()]))


def _ranges(value: str | int | range | list[int] | tuple[int, ...]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, range) and value.step == 1 and len(value) > 0:
        return f"{value[0]}-{value[-1]}"
    return "|".join(str(number) for number in value)


def _globs(value: str | list[str] | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else "|".join(value)


def _flag(value: bool | str) -> int:
    return int(value not in ("", "0", "no", "off", "false") if isinstance(value, str) else value)


def _number(value: int | str) -> int:
    return int(value)


# how the value of each option becomes what C takes
_CONVERT: dict[str, Any] = {
    "mode": lambda v: _choice("mode", v, _core.MODES),
    "keep": lambda v: _choice("keep", v, _core.KEEP),
    "full": lambda v: _choice("full", v, _core.FULL),
    "durability": lambda v: _choice("durability", v, _core.DURABILITY),
    "ring": lambda v: _choice("ring", v, _core.RINGS),
    "names": _globs,
    "steps": _ranges,
    "ranks": _ranges,
    "max_bytes": lambda v: _size("max_bytes", v),
    "reserve_bytes": lambda v: _size("reserve_bytes", v),
    "ring_bytes": lambda v: _size("ring_bytes", v),
    "segment_bytes": lambda v: _size("segment_bytes", v),
    "every": _number,
    "last": _number,
    "first_step": _number,
    "rank": _number,
    "world_size": _number,
    "device_index": _number,
    "stall_ms": _number,
    "freeze_on_nan": _flag,
    "distributed": _flag,
    "asynchronous": _flag,
    "checksum": lambda v: _core.CHECKSUMS[v] if v in _core.CHECKSUMS else _flag(v),
    "source": _flag,
}
_TEXTS = ("layout", "writer", "framework")


def record(
    dir: Path,
    *,
    layout: str | None = None,
    names: str | list[str] | tuple[str, ...] | None = None,
    steps: str | int | range | list[int] | tuple[int, ...] | None = None,
    ranks: str | int | range | list[int] | tuple[int, ...] | None = None,
    keep: Literal["both", "tensor", "stats", "health"] | None = None,
    mode: Literal["new", "append", "replace"] | None = None,
    every: int | None = None,
    last: int | None = None,
    freeze_on_nan: bool | None = None,
    max_bytes: int | str | None = None,
    reserve_bytes: int | str | None = None,
    ring_bytes: int | str | None = None,
    ring: Literal["auto", "memory", "file"] | None = None,
    full: Literal["block", "stats", "drop"] | None = None,
    stall_ms: int | None = None,
    durability: Literal["process", "flush", "save"] | None = None,
    segment_bytes: int | str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    device_index: int | None = None,
    distributed: bool | None = None,
    writer: str | None = None,
    asynchronous: bool | None = None,
    checksum: bool | Literal["crc32", "xor"] | None = None,
    framework: str | None = None,
    first_step: int | None = None,
    source: bool | None = None,
    predicate: Callable[[str, Any], bool] | None = None,
    config: Path | None = None,
) -> Recorder:
    """Start recording to a directory. The process has one recorder; ``save`` and ``step`` use it from any module.

    An option that is not given comes from the variable ``TENSORTAP_<OPTION>``, else it has its usual value:
    ``layout="native"``, ``keep="both"`` (statistics and bytes), ``mode="new"`` (a directory that holds a recording is
    refused; ``append`` adds a new attempt, ``replace`` deletes first), ``full="block"``. ``names`` are globs
    (``"attn.*|!*.bias"``), ``steps`` and ``ranks`` ranges (``"0|10-20|100-"``). Sizes may be written ``"20G"``.
    ``source=False`` leaves out the file and line of each save. ``predicate(name, value)`` says whether a value is
    saved, with its gradient; inside a compiled graph it is asked each time the graph runs.

    ``config`` (or ``TENSORTAP_CONFIG``) names a JSON file with options under these names; what is given here or in a
    variable wins. It is looked at again after each ``step``: ``"dump_enable": false`` pauses recording, ``true`` goes
    on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as d, record(d + "/run", keep="stats", steps=range(100)) as recorder:
    ...     recorder.save([1.0, 2.0], "pair")
    ...     recorder.numbers().saved
    2
    """
    given = {name: value for name, value in locals().items() if value is not None and name not in ("dir", "config")}
    if _core.current() is not None:
        raise RuntimeError(f"{_core.current()!r} is open already; close it first: tap.close()")
    _core.settle()  # what runs already is not of this recording
    recorder = _make(dir, given, config)
    _core.set_current(recorder)
    state.recording = True
    state.source = recorder.records_source
    return recorder


def _read_config(path: str) -> dict[str, Any]:
    """The options in a config file. Raises OSError or ValueError with what to do."""
    with open(path, encoding="utf-8") as file:
        try:
            config = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: not JSON: {error}; correct it") from None
    if not isinstance(config, dict):
        raise ValueError(f'{path}: give an object of options, such as {{"steps": "0-9", "dump_enable": true}}')
    unknown = set(config) - set(_CONVERT) - set(_TEXTS) - {"dir", "dump_enable"}
    if unknown:
        raise ValueError(f"{path}: no option {sorted(unknown)[0]!r}; there are {', '.join((*_CONVERT, *_TEXTS))}")
    return config


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _look_at_config(recorder: _core.Recorder) -> None:
    """After each step: a config file that was edited may pause or resume recording."""
    path = getattr(recorder, "_config", None)
    if path is None or not isinstance(recorder, Recorder):
        return
    stamp = _stamp(path)
    if stamp is None or stamp == recorder._config_seen:
        return
    recorder._config_seen = stamp
    try:
        recorder.set_enabled(_flag(_read_config(path).get("dump_enable", True)) != 0)
    except (OSError, ValueError) as error:  # perhaps half written: the next step looks again
        recorder._config_seen = None
        _core.say(f"{error}; recording goes on as before")


def _make(dir: Path, given: dict[str, Any], config: Path | None = None) -> Recorder:
    directory = os.fspath(dir)
    options: dict[str, Any] = {}
    path = os.fspath(config) if config is not None else os.environ.get("TENSORTAP_CONFIG") or None
    stamp = _stamp(path) if path else None
    from_file = _read_config(path) if path else {}
    if "predicate" in given:
        options["predicate"] = given["predicate"]
    for name in (*_CONVERT, *_TEXTS):
        value = given.get(name, os.environ.get("TENSORTAP_" + name.upper(), from_file.get(name)))
        if value is not None and value != "":
            options[name] = _CONVERT[name](value) if name in _CONVERT else value
    recorder = Recorder(dir=directory, **options)
    recorder.directory = directory
    recorder._config = path
    recorder._config_seen = stamp
    if path:
        _core.on_step(_look_at_config)
        recorder.set_enabled(_flag(from_file.get("dump_enable", True)) != 0)
    _open.add(recorder)
    _close_in_children()
    return recorder


def _from_environment() -> None:
    """The first save without a recorder: open the one the environment names, or say once how to record."""
    directory = os.environ.get("TENSORTAP_RECORD")
    if not directory:
        directory = _directory_of_config()
    if not directory:
        _core.say("not recording; call tap.record(DIR) or set TENSORTAP_RECORD")
        return
    try:
        record(directory)
    except (OSError, ValueError) as error:
        _core.say(f"TENSORTAP_RECORD={directory}: {error.args[0] if error.args else error}; not recording")


def _directory_of_config() -> str | None:
    path = os.environ.get("TENSORTAP_CONFIG")
    try:
        return str(_read_config(path)["dir"]) if path else None
    except (OSError, ValueError, KeyError):
        return None


def recording() -> bool:
    """Whether a recorder is open (opening the one that TENSORTAP_RECORD names, if any).

    >>> recording()
    False
    """
    if _core.current() is None and (os.environ.get("TENSORTAP_RECORD") or _directory_of_config()):
        _from_environment()
    return _core.current() is not None


def current() -> Recorder | None:
    """The open recorder of this process, or None."""
    recorder = _core.current()
    return recorder if isinstance(recorder, Recorder) else None


def set_step(step: int) -> None:
    """Go to a step by number, as after loading a checkpoint."""
    recorder = _core.current()
    if recorder is not None:
        recorder.set_step(step)


def declare(name: str, kind: str = "forward") -> None:
    """Announce that a name is going to be recorded; ``verify`` reports it when no value ever comes."""
    recorder = _core.current()
    if recorder is not None:
        recorder.declare(name, kind)


def flush(timeout: float | None = None) -> None:
    """Return when everything saved before is in its files; ``timeout`` in seconds, None: while there is progress.

    Files that ``tensortap.compat`` writes for other tools' calls count too.
    """
    for recorder in list(_open):
        if not recorder.closed:
            recorder.flush(-1.0 if timeout is None else timeout)


def close() -> None:
    """End the recording; after it all files are final. Does nothing when none is open."""
    recorder = _core.current()
    if recorder is not None:
        recorder.close()


def _close_all() -> None:
    for recorder in list(_open):
        try:
            recorder.close()
        except Exception as error:
            _core.say(str(error.args[0] if error.args else error))


def _close_in_children() -> None:
    """Processes of multiprocessing end without atexit; its own finalizers close what a child recorded."""
    global _registered
    if not _registered:
        from multiprocessing import util

        _registered = True
        util.register_after_fork(_open, lambda _: util.Finalize(None, _close_all, exitpriority=0))


_registered = False
_core.on_first_miss(_from_environment)
atexit.register(_close_all)
