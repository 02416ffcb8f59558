"""PrecisionDebugger at level "debug" (single-point save), for any framework; what each one adds is in its own module.

Every save goes through a recorder of layout "msprobe" ("msprobe_modules" at level L0), one a directory and rank, whose
writer keeps debug.json (dump.json) whole also when this process is killed.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any, ClassVar

from .. import _core
from .._record import directories, recording
from .._record.values import Lost
from ._msprobe_config import FileCheckException, MsprobeException, Settings, invalid, read
from ._msprobe_value import Shape

SLOT, GONE = _core.SAVE_SLOT, _core.SAVE_SLOT_GONE
_lock = threading.RLock()


def lock() -> threading.RLock:
    """The one that every save and step holds."""
    return _lock


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


class Hook:
    """Takes one gradient to the slot its forward left. When it goes without having run, the slot is given up."""

    def __init__(self, recorder: recording.Recorder, name: str, step: int, call: int, path: str) -> None:
        self.recorder, self.name, self.step, self.call = recorder, name, step, call
        self.path = path or None
        self.leaf = False
        self.came = False
        self.handle: Any = None

    def __call__(self, grad: Any) -> None:
        if self.came and self.recorder.closed:
            return
        if self.came and self.leaf and self.step != self.recorder.current_step:
            if self.handle is not None:  # a parameter keeps its hooks; this one's step is over
                self.handle.remove()
            return
        self.came = True
        put(self.recorder, grad, self.name, self.step, self.call, kind="grad", path=self.path)

    def __del__(self) -> None:
        try:
            if not self.came and not self.recorder.closed:
                put(
                    self.recorder, None, self.name, self.step, self.call, kind="grad", path=self.path,
                    flags=SLOT | GONE,
                )  # fmt: skip
        except Exception:
            return  # the interpreter is going


def put(recorder: recording.Recorder, value: Any, name: str, step: int, call: int, **more: Any) -> None:
    """Save, and never raise: what goes wrong is said once."""
    try:
        recorder.save(value, name, step=step, call=call, **more)
    except Exception as error:
        directories.say_once("msprobe", f"{name} was not saved: {error.args[0] if error.args else error}")


def written(recorders: list[recording.Recorder]) -> None:
    """Return when the files have everything saved before; a disk that fails is said once."""
    for recorder in recorders:
        try:
            if not recorder.closed:
                recorder.flush()
        except OSError as error:
            directories.say_once("written", f"debug.json may not be whole: {error.args[0] if error.args else error}")


def put_shape(recorder: recording.Recorder, shape: Shape, name: str, step: int, call: int, **more: Any) -> None:
    """Save a value that was walked."""
    if shape.cut:
        directories.say_once("deep", f"{name} is nested deeper than 400 levels; what lies deeper is left out")
    put(recorder, shape.value, name, step, call, **more)
    for path, part in reversed(shape.pieces):
        put(recorder, part, name, step, call, path=path, **more)


class Debugger:
    """Saves single values, their statistics and gradients, as msprobe does at level "debug". One a process."""

    _instance: ClassVar[Any] = None
    framework: ClassVar[str]
    levels: ClassVar[tuple[str, ...]] = ("debug",)

    def __new__(
        cls, config_path: Any = None, task: Any = None, dump_path: Any = None, level: Any = None, step: Any = None
    ) -> Any:
        given = (config_path, task, dump_path, level, step)
        with _lock:
            if cls._instance is not None:
                if given != (None,) * 5 and given != cls._instance._given:
                    _core.say("a second PrecisionDebugger with other arguments: the first one's stay in force")
                return cls._instance
            self = super().__new__(cls)
            self._start(given)
            cls._instance = self
            return self

    def _start(self, given: tuple[Any, ...]) -> None:
        self._given = given
        self._settings = self._read()
        self._hot = self._settings.dump_enable is not None
        self._enabled = self._settings.dump_enable is not False
        self._signature = self._look()
        self._init_step = self._loop = 0
        self._counts: dict[str, int] = {}
        self._recorders: dict[int | None, recording.Recorder] = {}
        self._recorder: recording.Recorder | None = None  # of this step
        self._ready = False
        self._rank_id: int | None = None  # given to start

    def _read(self) -> Settings:
        settings = read(*self._given)
        if settings.level not in self.levels:
            raise invalid(f'level {settings.level} is not served with {self.framework}; use level "debug"')
        return settings

    @property
    def settings(self) -> Settings:
        """What was read from arguments and file."""
        return self._settings

    @classmethod
    def _get(cls) -> Any:
        if cls._instance is None:
            raise Exception("PrecisionDebugger instance is not created.")
        return cls._instance

    # ------------------------------------------------------------------------------------------------------- saving

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Save a value under a name and, when they arrive, the gradients of its tensors."""
        self = cls._get()
        if not isinstance(name, str) or not isinstance(save_backward, bool):
            directories.say_once("save", "PrecisionDebugger.save takes a value, a str and a bool; this call is skipped")
            return
        with _lock:
            try:
                self._save(variable, name, save_backward, hooks=True)
            except Exception as error:
                directories.say_once("msprobe", f"{name} was not saved: {error.args[0] if error.args else error}")

    @staticmethod
    def rank() -> int | None:
        """The rank of this process, None without a process group."""
        raise NotImplementedError

    @staticmethod
    def hook(tensor: Any, hook: Hook) -> None:
        """Have the hook called with the gradient of a tensor."""
        raise NotImplementedError

    def _save(self, variable: Any, name: str, backward: bool, hooks: bool) -> tuple[int, int]:
        """Returns step and call, (-1, 0) when nothing was wanted."""
        if self._settings.level != "debug":
            level = self._settings.level
            directories.say_once("level", f'{name} was not saved: save is for level "debug", not {level}')
            return -1, 0
        step = self._loop + self._init_step
        if not self._enabled or (self._settings.steps and step not in self._settings.steps):
            return -1, 0
        if not self._ready:
            self._recorder = self._open(step)
            self._ready = True
        recorder = self._recorder
        if recorder is None:
            return -1, 0
        try:
            shape = Shape(variable)
        except Exception as error:
            shape = Shape(Lost(error))
        call = self._counts.get(name, 0)
        self._counts[name] = call + 1
        put_shape(recorder, shape, name, step, call)
        if backward:
            self._announce(recorder, shape, name, step, call, hooks)
        return step, call

    def _announce(
        self, recorder: recording.Recorder, shape: Shape, name: str, step: int, call: int, hooks: bool
    ) -> None:
        """A place for every gradient, empty until it comes."""
        flags = SLOT if shape.mirror is None and shape.gradients else SLOT | GONE
        put(recorder, shape.mirror, name, step, call, kind="grad", flags=flags)
        for path, part in reversed(shape.mirror_pieces):
            put(recorder, part, name, step, call, kind="grad", flags=SLOT | GONE, path=path)
        for path, tensor in shape.gradients:
            if path:
                put(recorder, None, name, step, call, kind="grad", flags=SLOT, path=path)
            if hooks:
                self.hook(tensor, Hook(recorder, name, step, call, path))

    def _open(self, step: int) -> recording.Recorder | None:
        """The recorder of this process's rank, None when it is not wanted."""
        rank = self.rank() if self._rank_id is None else self._rank_id
        known = rank if rank is not None else int(os.environ.get("RANK") or 0)
        if self._settings.ranks and known not in self._settings.ranks:
            return None
        recorder = self._recorders.get(rank)
        if recorder is None or recorder.closed:
            options = {
                "layout": "msprobe" if self._settings.level == "debug" else "msprobe_modules",
                "framework": self.framework,
                "keep": "both" if self._settings.task == "tensor" else "stats",
                "rank": known,
                "distributed": rank is not None,
                "asynchronous": self._settings.asynchronous,
                "checksum": self._settings.checksum,
                "first_step": step,
                "source": False,
            }
            recorder = self._recorders[rank] = recording._make(self._settings.dump_path, options)
        elif recorder.current_step != step:
            recorder.set_step(step)
        return recorder

    # -------------------------------------------------------------------------------------------------------- steps

    @classmethod
    def step(cls) -> None:
        """End the step; counting starts again."""
        with _lock:
            self = cls._get()
            self._pause()
            self._go_to(self._loop + 1)
            self._reload()
            written(list(self._recorders.values()))

    def _go_to(self, loop: int) -> None:
        self._loop = loop
        self._counts.clear()
        self._ready = False
        for recorder in self._recorders.values():
            if not recorder.closed:
                recorder.set_step(self._loop + self._init_step)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """The number of the first step."""
        if not isinstance(step, int) or isinstance(step, bool):
            raise invalid(f"{step} must be an integer")
        if step < 0:
            raise invalid(f"{step} must be greater than or equal to 0")
        with _lock:
            self = cls._get()
            self._init_step = step
            self._go_to(0)

    @classmethod
    def start(
        cls, model: Any = None, token_range: Any = None, rank_id: Any = None, scheduled_tokens: Any = None
    ) -> None:
        """At level L0 modules are watched from here on; else only a changed configuration is taken up."""
        with _lock:
            self = cls._get()
            self._reload()
            if self._settings.level != "debug":
                if token_range is not None or scheduled_tokens is not None:
                    said = "token_range and scheduled_tokens have no effect: everything is dumped"
                    directories.say_once("tokens", said)
                if rank_id is not None and (not isinstance(rank_id, int) or isinstance(rank_id, bool) or rank_id < 0):
                    raise invalid(f"rank_id must be an integer from 0, not {rank_id!r}")
                self._rank_id = rank_id if rank_id is not None else self._rank_id
                self._watch(model)

    @classmethod
    def stop(cls) -> None:
        """At level L0 modules are not watched any more, and dump.json is whole."""
        with _lock:
            self = cls._get()
            self._pause()
            self._reload()
            written(list(self._recorders.values()))

    def _watch(self, model: Any) -> None:
        """Start to watch the modules of a model."""

    def _pause(self) -> None:
        """Stop watching."""

    # --------------------------------------------------------------------------------------------------- hot switch

    def _look(self) -> tuple[int, int] | None:
        path = self._given[0]
        try:
            found = os.stat(path) if path else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size) if found is not None else None

    def _reload(self) -> None:
        """Take up a changed config.json, where dump_enable was there from the start."""
        if not self._hot:
            return
        now = self._look()
        if now is None or now == self._signature:
            return
        self._signature = now
        before = self._settings
        try:
            self._settings = self._read()
        except (MsprobeException, FileCheckException, OSError) as error:
            self._enabled = False
            self._pause()
            _core.say(f"{self._given[0]} was changed and cannot be read, so saving stops until it can: {error}")
            return
        if self._settings.dump_enable is not None:
            self._enabled = self._settings.dump_enable
        self._ready = False
        if (before.level, before.task, before.dump_path, before.asynchronous, before.checksum) != (
            self._settings.level,
            self._settings.task,
            self._settings.dump_path,
            self._settings.asynchronous,
            self._settings.checksum,
        ):
            self._recorders = {}  # gradients under way still hold theirs


def seed(seed: Any, mode: Any, rm_dropout: Any) -> None:
    """What seed_all does in every framework: look at its arguments, and seed Python and numpy."""
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise invalid("Seed must be integer.")
    if not 0 <= seed <= 2**32 - 1:
        raise invalid(f"Seed must be between 0 and {2**32 - 1}.")
    if not isinstance(mode, bool):
        raise invalid("seed_all mode must be bool.")
    if not isinstance(rm_dropout, bool):
        raise invalid("The rm_dropout parameter must be bool.")
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    try:
        import numpy

        numpy.random.seed(seed)
    except ImportError:
        pass
