"""Gradients of values that were saved eagerly: the hook on each tensor, and where each tensor lies in its value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .. import _core
from .sites import SLOT, SLOT_GONE
from .values import SKIP

_said: set[str] = set()


def say_once(text: str) -> None:
    """A warning that is not repeated."""
    if text not in _said:
        _said.add(text)
        _core.say(text)


class Gradient:
    """The hook on one tensor: saves its gradient with the step and call of the forward that asked for it."""

    __slots__ = ("call", "came", "handle", "name", "place", "recorder", "slot", "step")

    def __init__(self, recorder: Any, place: Callable[[Any], Any], name: str, step: int, call: int, slot: bool):
        self.recorder = recorder
        self.place = place
        self.name = name
        self.step = step
        self.call = call
        self.slot = slot
        self.came = False
        self.handle: Any = None

    def save(self, value: Any, flags: int) -> None:
        """Save the gradient, or an announcement of it; never raises."""
        try:
            if not self.recorder.closed:
                place = self.place(value)
                self.recorder.save(place, self.name, "grad", self.step, call=self.call, flags=flags, asked=True)
        except Exception as error:
            say_once(f"the gradient of {self.name} was not recorded: {error}")

    def announce(self, value: Any) -> None:
        """Leave a slot that the gradient fills when it comes."""
        self.save(value, SLOT)

    def __del__(self) -> None:
        if self.slot and not self.came and not sys.is_finalizing():
            self.save(None, SLOT_GONE)


def here(value: Any) -> Any:
    """The place of a value that is not nested."""
    return value


def leaves(
    value: Any, wanted: Callable[[Any], bool], place: Callable[[Any], Any] = here
) -> list[tuple[Any, Callable[[Any], Any]]]:
    """The wanted tensors of a nested value, each with a function that puts a value in its place."""
    if wanted(value):
        return [(value, place)]
    found = []
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        value = dict(zip(value._fields, value))
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        value = {key: getattr(value, key, None) for key in value.__dataclass_fields__}
    if isinstance(value, (list, tuple)):
        kind, count = (list if isinstance(value, list) else tuple), len(value)
        for i, item in enumerate(value):

            def at(x: Any, i: int = i) -> Any:
                return place(kind(x if j == i else SKIP for j in range(count)))

            found += leaves(item, wanted, at)
    elif isinstance(value, dict):
        for key, item in value.items():

            def under(x: Any, key: Any = key) -> Any:
                return place({key: x})

            found += leaves(item, wanted, under)
    return found
