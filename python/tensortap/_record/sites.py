"""The text that a tap inside a graph carries, as py_site.c reads it."""

from __future__ import annotations

from typing import Any

from .. import _core

KINDS = _core.KINDS
SLOT, SLOT_GONE = _core.SAVE_SLOT, _core.SAVE_SLOT_GONE


def text(value: str) -> str:
    """A text inside a site.

    >>> text("a;b")
    'a%3Bb'
    """
    if not value.isascii() or "\0" in value:
        value = clean(value)
    return value.replace("%", "%25").replace(";", "%3B")


def clean(value: str) -> str:
    """What an operator's str cannot hold, written as C does in eager."""
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


clean._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo runs it rather than trace it


def number(value: int) -> str:
    """The tree of an int that 64 bits do not hold.

    >>> number(1 << 70)
    '@int;s1180591620717411303424;'
    """
    try:
        return "@int;s" + str(value) + ";"
    except ValueError as error:  # Python does not print more than some thousand digits
        return lost(f"ValueError: {error}")


number._dynamo_marked_constant = True  # type: ignore[attr-defined]


def lost(reason: str) -> str:
    """The tree of a leaf that cannot be recorded.

    >>> lost("it has no numbers")
    'xit has no numbers;'
    """
    return "x" + text(reason) + ";"


def constant(value: Any, name: str) -> str:
    """The tree of a leaf that is no tensor; ``name`` is its type's.

    >>> constant(1.5, "float"), constant("x", "str")
    ('f1.5;', 'sx;')
    """
    if value is None:
        return "n"
    if isinstance(value, bool):
        return "b1" if value else "b0"
    if isinstance(value, float):
        return "f" + repr(value) + ";"
    if isinstance(value, complex):
        return "c" + repr(value.real) + "," + repr(value.imag) + ";"
    if isinstance(value, str):
        return "s" + text(value) + ";"
    return "s" + text(name) + ";"
