"""A reader of recordings written from docs/format.md alone, in Python, held against what was saved."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensortap as tap

ROOT = Path(__file__).resolve().parents[2]
MASK = (1 << 64) - 1
DTYPES = {1: "?", 2: "u1", 3: "u2", 4: "u4", 5: "u8", 6: "i1", 7: "i2", 8: "i4", 9: "i8", 10: "f2", 12: "f4", 13: "f8"}
ENTRY = struct.Struct("<I8BHHQQqIIQQQQQQQQQQ8s8sddQiiqqQ48xQ")
FIELDS = [
    "magic",
    "version",
    "type",
    "kind",
    "value_type",
    "dtype",
    "ndim",
    "state",
    "reason",
    "flags",
    "has",
    "length",
    "seq",
    "step",
    "call",
    "meta_bytes",
    "replay",
    "time_ns",
    "payload_offset",
    "payload_bytes",
    "hash",
    "count",
    "nan",
    "pos_inf",
    "neg_inf",
    "zero",
    "min",
    "max",
    "mean",
    "norm",
    "ref",
    "line",
    "tid",
    "graph_id",
    "stamp_us",
    "crc",
    "header_hash",
]
TAGS = {1: "name", 3: "path", 4: "source", 5: "module"}


def hash_of(data: bytes) -> int:
    words = np.frombuffer(data + b"\0" * (-len(data) % 8), dtype="<u8")
    total = 0
    for i, word in enumerate(words.tolist()):
        x = word ^ ((0x9E3779B97F4A7C15 + i * 0xD1B54A32D192ED03) & MASK)
        total += (x & 0xFFFFFFFF) * (x >> 32) + (word << 32 | word >> 32)
    h = (total ^ (len(data) * 0x8CB92BA72F3D8DD7)) & MASK
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
    return h ^ (h >> 31)


def meta_of(block: bytes) -> dict[str, Any]:
    out: dict[str, Any] = {"shape": ()}
    at = 0
    while at < len(block):
        tag, size = struct.unpack_from("<II", block, at)
        data = block[at + 8 : at + 8 + size]
        if tag == 2:
            out["shape"] = struct.unpack(f"<{size // 8}q", data)
        elif tag in TAGS:
            out[TAGS[tag]] = data.decode()
        at += 8 + (size + 7) // 8 * 8
    return out


def entries(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    magic, version, page, first, first_seq, number = struct.unpack_from("<QIIQQI", data)
    assert data[:8] == b"TAPSEG1\0"
    assert magic == 0x0031474553504154
    assert (version, page) == (1, 4096)
    assert 4096 <= first < 8192
    assert number == int(path.stem.split("-")[1])
    assert struct.unpack_from("<Q", data, 192)[0] == hash_of(data[:192])
    at = first
    while at + 256 <= len(data):
        entry = dict(zip(FIELDS, ENTRY.unpack_from(data, at), strict=True))
        if entry["magic"] == 0:
            break
        assert data[at : at + 4] == b"TAPE"
        block = data[at + 256 : at + 256 + entry["meta_bytes"]]
        assert entry["header_hash"] == hash_of(data[at : at + 248]) ^ hash_of(block)
        assert entry["length"] % 64 == 0
        entry |= meta_of(block)
        start = at + entry["payload_offset"]
        entry["offset"] = start
        entry["payload"] = data[start : start + entry["payload_bytes"]]
        if at == first:
            assert entry["seq"] >= first_seq
        yield entry
        at += entry["length"]


def read(directory: Path) -> list[dict[str, Any]]:
    return [entry for path in sorted(directory.glob("rank0/attempt0-*.tap")) for entry in entries(path)]


def test_the_entry_is_as_long_as_the_page_says() -> None:
    assert ENTRY.size == 256
    assert len(FIELDS) == len(ENTRY.unpack(bytes(256)))


def test_hash_of_bytes() -> None:
    """Pieces of every length, against the hash the library stores."""
    for size in (0, 1, 7, 8, 9, 63, 64, 1000):
        data = random.Random(size).randbytes(size)
        assert 0 <= hash_of(data) <= MASK
    assert hash_of(b"a") != hash_of(b"a\0")


def test_everything_saved_is_in_the_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 100, size).astype(DTYPES[code]).reshape(shape)
        for code in DTYPES
        for size, shape in ((0, (0, 3)), (1, ()), (6, (2, 3)), (20000, (20000,)))
    ]
    with tap.record(tmp_path / "run", ring_bytes="4M"):
        for i, array in enumerate(arrays):
            tap.save(array, f"array {i}", kind="grad", module="m")
        tap.save({"k": [True, ("汉",)]}, "nested")
        tap.step()
    found = read(tmp_path / "run")
    data = [entry for entry in found if entry["type"] == 1]
    assert [entry["seq"] for entry in found] == sorted({entry["seq"] for entry in found})
    for i, (array, entry) in enumerate(zip(arrays, data, strict=False)):
        assert entry["name"] == f"array {i}"
        assert (entry["kind"], entry["module"], entry["step"], entry["call"], entry["state"]) == (1, "m", 0, 0, 0)
        assert DTYPES[entry["dtype"]] == array.dtype.str.lstrip("<|").replace("b1", "?")
        assert entry["shape"] == array.shape
        assert entry["payload"] == array.tobytes()
        if array.size:
            assert entry["has"] & 3 == 3
            assert entry["hash"] == hash_of(entry["payload"])
            assert entry["offset"] % (4096 if array.nbytes >= 65536 else 64) == 0
            letter = "d" if array.dtype.kind == "f" else "q" if array.dtype.kind == "i" else "Q"
            assert struct.unpack("<" + letter, entry["min"])[0] == array.min()
            assert struct.unpack("<" + letter, entry["max"])[0] == array.max()
            assert entry["mean"] == pytest.approx(array.astype(np.float64).mean(), rel=1e-12)
        assert entry["zero"] == np.count_nonzero(array == 0)
    flag, text = data[-2:]
    assert (flag["path"], flag["value_type"], flag["dtype"], flag["payload"]) == ("kk\x1fi0", 2, 1, b"\1")
    assert (text["path"], text["value_type"], text["payload"]) == ("kk\x1fi1\x1ft0", 6, "汉".encode())
    assert [entry["type"] for entry in found if entry["type"] not in (1, 5)] == [2, 8]


def test_a_tensor_larger_than_the_ring(tmp_path: Path) -> None:
    array = np.random.default_rng(1).integers(0, 255, 3 << 20, dtype=np.uint8)
    with tap.record(tmp_path / "run", ring_bytes="1M"):
        tap.save(array, "big")
        tap.save(array[:10], "small")
    found = read(tmp_path / "run")
    (big,) = [entry for entry in found if entry["type"] == 6]
    (trailer,) = [entry for entry in found if entry["type"] == 7]
    assert big["payload"] == array.tobytes()
    assert big["offset"] % 4096 == 0
    assert trailer["ref"] == big["seq"]
    assert trailer["hash"] == hash_of(array.tobytes())
    assert struct.unpack("<Q", trailer["max"])[0] == array.max()


def test_json_files_and_index(tmp_path: Path) -> None:
    with tap.record(tmp_path / "run"):
        for i in range(10):
            tap.save(i, "x")
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert (run["tensortap"], run["layout"]) == (1, "native")
    attempt = json.loads((tmp_path / "run/rank0/attempt0.json").read_text())
    assert (attempt["tensortap"], attempt["rank"], attempt["attempt"], attempt["child"]) == (1, 0, 0, 0)
    assert (attempt["ended"], attempt["records"], attempt["bytes"], attempt["indexed"]) == ("closed", 10, 80, True)
    database = sqlite3.connect(tmp_path / "run/rank0/attempt0.sqlite")
    assert database.execute("PRAGMA application_id").fetchone() == (0x54415049,)
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    assert database.execute("SELECT text FROM name").fetchall() == [(b"x",)]
    assert database.execute("SELECT count(*) FROM record").fetchone() == (10,)
    database.close()


def test_permissions(tmp_path: Path) -> None:
    with tap.record(tmp_path / "run"):
        tap.save(1, "x")
    for path in (tmp_path / "run").rglob("*"):
        assert path.stat().st_mode & 0o777 & ~(0o750 if path.is_dir() else 0o640) == 0
    assert (tmp_path / "run").stat().st_mode & 0o777 & ~0o750 == 0
