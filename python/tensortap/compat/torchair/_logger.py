"""``torchair.logger``: on stdout, with the levels and the form of torchair's; ``TNG_LOG_LEVEL`` sets the level."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any

from ... import _core

__all__ = ["EVENT", "Logger", "logger"]

EVENT = 35
_LEVELS = {"0": logging.DEBUG, "1": logging.INFO, "2": logging.WARNING, "3": logging.ERROR, "4": EVENT}


class _Formatter(logging.Formatter):
    def __init__(self, tag: str) -> None:
        program = os.path.basename(sys.executable)
        who = f"{tag}({os.getpid()},{program})"
        super().__init__(f"[%(levelname)s] {who}:%(asctime)s [%(filename)s:%(lineno)d]%(native)d %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.native = threading.get_native_id()
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        micro = int((record.created % 1) * 1_000_000)
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        return f"{date}.{micro // 1000:03d}.{micro % 1000:03d}"


class _Stdout(logging.StreamHandler[Any]):
    """Whatever stdout is when something is said."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stdout

    @stream.setter
    def stream(self, value: Any) -> None:
        pass


class Logger(logging.Logger):
    """logging's, with ``event`` and ``warning_once``."""

    def __init__(self, name: str, tag: str) -> None:
        super().__init__(name)
        self._once: set[str] = set()
        handler = _Stdout()
        handler.setFormatter(_Formatter(tag))
        self.addHandler(handler)
        self.propagate = False

    def event(self, message: object, *args: Any, **kwargs: Any) -> None:
        """Something that happened, between a warning and an error."""
        if self.isEnabledFor(EVENT):
            self._log(EVENT, message, args, **{"stacklevel": 2, **kwargs})

    def warning_once(self, message: object, *args: Any, **kwargs: Any) -> None:
        """A warning that is not repeated."""
        text = str(message) % args if args else str(message)
        if text not in self._once:
            self._once.add(text)
            self.warning(text, **{"stacklevel": 2, **kwargs})


def _level() -> int:
    """As TNG_LOG_LEVEL says; the C side is told too."""
    text = os.environ.get("TNG_LOG_LEVEL")
    if text is None:
        debug = os.environ.get("TORCH_COMPILE_DEBUG") == "1"
        if debug:
            _core.set_log_level(0)
        return logging.DEBUG if debug else logging.ERROR
    if text not in _LEVELS:
        print(f"Value of TNG_LOG_LEVEL should be in {{0, 1, 2, 3, 4}}, but got {text}", file=sys.stderr)
        return logging.ERROR
    _core.set_log_level(int(text))
    return _LEVELS[text]


def make(name: str, tag: str) -> Logger:
    """A logger in logging's table, so that getLogger finds it."""
    logging.addLevelName(EVENT, "EVENT")
    made = Logger(name, tag)
    logging.Logger.manager.loggerDict[name] = made
    made.parent = logging.getLogger()
    made.manager = logging.Logger.manager
    made.setLevel(_level())
    return made


logger = make("torchair", "TORCHAIR")
