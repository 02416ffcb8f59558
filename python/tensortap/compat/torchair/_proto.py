"""Messages of ge_ir.proto as text and as bytes, and bytes as messages; the schema is read from that file.

A message is a dict by field name: repeated fields are lists, maps are dicts. No protobuf package is needed.
"""

from __future__ import annotations

import functools
import os
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

Message = dict[str, Any]


class Field(NamedTuple):
    """One field of a message."""

    name: str
    number: int
    type: str
    many: bool
    is_map: bool


@functools.cache
def _schema() -> tuple[dict[str, dict[str, Field]], dict[str, dict[str, int]]]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ge_ir.proto")
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"//[^\n]*", "", file.read())
    messages: dict[str, dict[str, Field]] = {}
    enums: dict[str, dict[str, int]] = {}
    stack: list[tuple[str, str]] = []
    token = re.compile(
        r"(?P<open>(message|enum|oneof)\s+(?P<name>\w+)\s*\{)|(?P<close>\})|"
        r"(?P<map>map<string,\s*(?P<value>\w+)>\s+(?P<mname>\w+)\s*=\s*(?P<mnumber>\d+);)|"
        r"(?P<entry>(?P<ename>[A-Z_0-9]+)\s*=\s*(?P<enumber>\d+);)|"
        r"(?P<field>(?P<many>repeated\s+)?(?P<type>\w+)\s+(?P<fname>\w+)\s*=\s*(?P<fnumber>\d+);)"
    )
    for match in token.finditer(text):
        if match["open"]:
            kind = match[2]
            stack.append((kind, match["name"]))
            if kind == "message":
                messages[match["name"]] = {}
            elif kind == "enum":
                enums[match["name"]] = {}
        elif match["close"]:
            stack.pop()
        elif match["entry"] and stack[-1][0] == "enum":
            enums[stack[-1][1]][match["ename"]] = int(match["enumber"])
        else:
            inside = next(name for kind, name in reversed(stack) if kind == "message")
            if match["map"]:
                found = Field(match["mname"], int(match["mnumber"]), match["value"], True, True)
            else:
                found = Field(match["fname"], int(match["fnumber"]), match["type"], bool(match["many"]), False)
            messages[inside][found.name] = found
    return messages, enums


def enum_number(enum: str, name: str) -> int:
    """The number of a name."""
    return _schema()[1][enum].get(name, 0)


# ---------------------------------------------------------------------------------------------------------------- text


def quoted(value: str | bytes) -> str:
    """As text format writes strings."""
    data = value.encode() if isinstance(value, str) else value
    out = []
    for byte in data:
        c = chr(byte)
        if c in '"\\':
            out.append("\\" + c)
        elif c == "\n":
            out.append("\\n")
        elif 32 <= byte < 127:
            out.append(c)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def _scalar_text(kind: str, value: Any) -> str:
    if kind in ("string", "bytes"):
        return quoted(value)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "float":
        return repr(float(value)) if value == value and abs(value) != float("inf") else str(value).replace("inf", "inf")
    return str(value)


def to_text(kind: str, message: Message, indent: str = "") -> str:
    """Protobuf's text format."""
    messages, enums = _schema()
    out = []
    for name, value in message.items():
        field = messages[kind][name]
        if field.is_map:
            for key, each in value.items():
                inner = to_text(field.type, each, indent + "    ")
                entry = f"{indent}  key: {quoted(key)}\n{indent}  value {{\n{inner}{indent}  }}\n"
                out.append(f"{indent}{name} {{\n{entry}{indent}}}\n")
            continue
        for each in value if field.many else [value]:
            if field.type in messages:
                out.append(f"{indent}{name} {{\n{to_text(field.type, each, indent + '  ')}{indent}}}\n")
            else:
                out.append(f"{indent}{name}: {each if field.type in enums else _scalar_text(field.type, each)}\n")
    return "".join(out)


# --------------------------------------------------------------------------------------------------------------- bytes


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _scalar_bytes(kind: str, value: Any) -> tuple[int, bytes]:
    """Wire type and bytes."""
    if kind in ("string", "bytes"):
        data = value.encode() if isinstance(value, str) else bytes(value)
        return 2, _varint(len(data)) + data
    if kind == "float":
        return 5, struct.pack("<f", value)
    return 0, _varint(int(value))


def to_bytes(kind: str, message: Message) -> bytes:
    """Protobuf's binary format."""
    messages, enums = _schema()
    out = []

    def put(number: int, wire: int, data: bytes) -> None:
        out.append(_varint(number << 3 | wire) + data)

    for name, value in message.items():
        field = messages[kind][name]
        if field.is_map:
            for key, each in value.items():
                inner = to_bytes(field.type, each)
                entry = b"\x0a" + _varint(len(key.encode())) + key.encode() + b"\x12" + _varint(len(inner)) + inner
                put(field.number, 2, _varint(len(entry)) + entry)
            continue
        packed = field.many and field.type not in messages and field.type not in ("string", "bytes")
        if packed:
            data = b"".join(_scalar_bytes(field.type, each)[1] for each in value)
            put(field.number, 2, _varint(len(data)) + data)
            continue
        for each in value if field.many else [value]:
            if field.type in messages:
                inner = to_bytes(field.type, each)
                put(field.number, 2, _varint(len(inner)) + inner)
            else:
                number = enums[field.type].get(each, 0) if field.type in enums else each
                put(field.number, *_scalar_bytes("int64" if field.type in enums else field.type, number))
    return b"".join(out)


def _parts(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Field number, wire type, value; raises ValueError for bytes that are no message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise ValueError("ends within a number")
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        wire = tag & 7
        if wire == 0:
            yield tag >> 3, wire, varint()
            continue
        size = varint() if wire == 2 else {1: 8, 5: 4}.get(wire)
        if size is None or at + size > len(data):
            raise ValueError("ends within a field")
        yield tag >> 3, wire, data[at : at + size]
        at += size


def _scalar_of(kind: str, wire: int, value: Any) -> Any:
    enums = _schema()[1]
    if kind == "string":
        return bytes(value).decode()
    if kind == "bytes":
        return bytes(value)
    if kind == "float":
        return struct.unpack("<f", value)[0]
    if kind == "bool":
        return bool(value)
    if kind in enums:
        return next((name for name, number in enums[kind].items() if number == value), "DT_UNDEFINED")
    return value - (1 << 64) if value >> 63 else value


def _unpacked(kind: str, value: Any) -> list[Any]:
    if kind == "float":
        return [each[0] for each in struct.iter_unpack("<f", value)]
    out, data, at = [], bytes(value), 0
    while at < len(data):
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        out.append(_scalar_of(kind, 0, number))
    return out


def from_bytes(kind: str, data: bytes | memoryview) -> Message:
    """A message from its bytes; unknown fields are left out."""
    messages, _ = _schema()
    fields = {field.number: field for field in messages[kind].values()}
    found: Message = {}
    for number, wire, value in _parts(memoryview(data)):
        field = fields.get(number)
        if field is None:
            continue
        if field.is_map:
            entry = {key: inside for key, _, inside in _parts(value)}
            found.setdefault(field.name, {})[bytes(entry.get(1, b"")).decode()] = from_bytes(
                field.type, entry.get(2, b"")
            )
            continue
        if field.type in messages:
            made: list[Any] = [from_bytes(field.type, value)]
        elif field.many and wire == 2 and field.type not in ("string", "bytes"):
            made = _unpacked(field.type, value)
        else:
            made = [_scalar_of(field.type, wire, value)]
        if field.many:
            found.setdefault(field.name, []).extend(made)
        else:
            found[field.name] = made[0]
    return found
