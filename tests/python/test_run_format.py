"""A native recording written by Python from the description of the format alone, read by the command; and the index
the command builds, read by Python's own sqlite3. Neither side shares code with the library."""

import json
import os
import pathlib
import sqlite3
import struct
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = pathlib.Path(os.environ.get("TENSORTAP_BUILD") or ROOT / "build" / "dev") / "tensortap"
MASK = (1 << 64) - 1
DATA, STEP, LOST, END = 1, 2, 4, 8
F32, I64 = 12, 9

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")


def hash_bytes(data: bytes) -> int:
    total = 0
    padded = data + b"\0" * (-len(data) % 8)
    for i, (word,) in enumerate(struct.iter_unpack("<Q", padded)):
        x = word ^ (0x9E3779B97F4A7C15 + i * 0xD1B54A32D192ED03 & MASK)
        total += (x & 0xFFFFFFFF) * (x >> 32) + (word << 32 & MASK | word >> 32)
    h = (total & MASK) ^ (len(data) * 0x8CB92BA72F3D8DD7 & MASK)
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ h >> 27) * 0x94D049BB133111EB & MASK
    return h ^ h >> 31


def meta_item(tag: int, data: bytes) -> bytes:
    return struct.pack("<II", tag, len(data)) + data + b"\0" * (-len(data) % 8)


class Segment:
    """One segment file in memory."""

    def __init__(self, number: int = 0, first_seq: int = 0, first_entry: int = 4096):
        head = struct.pack("<QIIQQIiiiiiQ64s64x", 0x31474553504154, 1, 4096, first_entry, first_seq, number, 0, 0, 0,
                           os.getpid(), 1, 0, b"host")
        head += struct.pack("<Q", hash_bytes(head))
        self.bytes = bytearray(head.ljust(first_entry, b"\0"))
        self.seq = first_seq

    def add(self, kind: int, name: str = "", array: np.ndarray | None = None, step: int = 0, path: bytes = b"",
            count: int = 0, reason: int = 0, call: int = 0) -> int:
        meta = b""
        payload = b"" if array is None else array.tobytes()
        if array is not None and array.ndim:
            meta += meta_item(2, struct.pack(f"<{array.ndim}q", *array.shape))
        if name:
            meta += meta_item(1, name.encode())
        if path:
            meta += meta_item(3, path)
        meta += meta_item(77, b"of a later version")
        start = len(self.bytes)
        at = -(-(start + 256 + len(meta)) // 64) * 64
        if len(payload) >= 65536:
            at = -(-at // 4096) * 4096
        end = -(-(at + len(payload)) // 64) * 64
        dtype = 0 if array is None else {"float32": F32, "int64": I64}[array.dtype.name]
        low = high = b"\0" * 8
        mean = norm = 0.0
        if array is not None and array.size:
            code = "<d" if dtype == F32 else "<q"
            low, high = struct.pack(code, array.min()), struct.pack(code, array.max())
            wide = array.astype(np.float64)
            mean, norm, count = float(wide.mean()), float(np.sqrt((wide**2).sum())), array.size
        head = struct.pack("<IBBBBBBBBHHQQqIIQQQQQQQQQQ8s8sddQiiqq56x", 0x45504154, 1, kind, 0, 0, dtype,
                           0 if array is None else array.ndim, 0, reason, 0, 3 if payload else 0, end - start, self.seq,
                           step, call, len(meta), 0, 1_700_000_000_000_000_000 + self.seq,
                           at - start if payload else 0, len(payload), hash_bytes(payload) if payload else 0, count,
                           0, 0, 0, int((array == 0).sum()) if array is not None else 0, low, high, mean, norm, 0,
                           12, 1, 0, 0)
        assert len(head) == 248
        head += struct.pack("<Q", hash_bytes(head) ^ hash_bytes(meta))
        self.bytes += (head + meta).ljust(at - start, b"\0") + payload.ljust(end - at, b"\0")
        self.seq += 1
        return self.seq - 1


def write_run(directory: pathlib.Path, segments: list[Segment], ended: str = "closed") -> None:
    rank = directory / "rank0"
    rank.mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps({"tensortap": 1, "layout": "native", "unknown": [1]}))
    info = {"tensortap": 1, "pid": 1, "host": "h", "ended": ended, "segments": len(segments),
            "entries": segments[-1].seq}
    (rank / "attempt0.json").write_text(json.dumps(info))
    for i, segment in enumerate(segments):
        (rank / f"attempt0-{i:06}.tap").write_bytes(segment.bytes)


def run(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMMAND), *map(str, args)], capture_output=True, text=True, timeout=60, check=False)


def lines(*args: object) -> list[dict]:
    done = run(*args)
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


ARRAYS = [
    ("层.0", np.arange(6, dtype=np.float32).reshape(2, 3), b"kkey2\x1fi0", "key2.0"),
    ("n", np.array(5, dtype=np.int64), b"", ""),
    ("large", np.linspace(-3, 9, 20000, dtype=np.float32), b"t1", "1"),
    ("empty", np.zeros((3, 0), dtype=np.float32), b"", ""),
    ("x" * 10000, np.full(7, -2, dtype=np.int64), b"", ""),
]


@pytest.fixture
def recording(tmp_path: pathlib.Path) -> pathlib.Path:
    first = Segment(first_entry=4096 + 1024)
    for step, (name, array, path, _) in enumerate(ARRAYS[:3]):
        first.add(DATA, name, array, step, path, call=step)
    first.add(200, "a type of a later version")
    second = Segment(1, first.seq)
    for step, (name, array, path, _) in enumerate(ARRAYS[3:], 3):
        second.add(DATA, name, array, step, path, call=step)
    second.add(STEP, step=4)
    second.add(END)
    write_run(tmp_path / "run", [first, second])
    return tmp_path / "run"


def check_listing(directory: pathlib.Path) -> None:
    got = [r for r in lines("ls", "--json", directory) if "name" in r]
    assert [r["name"] for r in got] == [a[0] for a in ARRAYS]
    for step, (record, (_, array, _, shown)) in enumerate(zip(got, ARRAYS, strict=True)):
        assert record["path"] == shown
        assert record["step"] == record["call"] == step
        assert record["shape"] == list(array.shape)
        assert record["dtype"] == array.dtype.name
        assert record["bytes"] == array.nbytes
        data = (directory / record["file"]).read_bytes()[record["offset"]:][: array.nbytes]
        assert data == array.tobytes()
        assert record["hash"] == (f"{hash_bytes(data):016x}" if data else None)
        if array.size:
            assert record["stats"]["min"] == array.min()
            assert record["stats"]["max"] == array.max()


def test_written_by_python(recording: pathlib.Path) -> None:
    check_listing(recording)
    done = run("verify", recording)
    assert done.returncode == 0, done.stdout + done.stderr


def test_index_read_by_python(recording: pathlib.Path) -> None:
    assert run("index", recording).returncode == 0
    check_listing(recording)  # from the index now
    db = sqlite3.connect(f"file:{recording}/rank0/attempt0.sqlite?mode=ro", uri=True)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("PRAGMA application_id").fetchone() == (0x54415049,)
    names = dict(db.execute("SELECT id, text FROM name"))
    texts = dict(db.execute("SELECT id, text FROM text"))
    for table in ("name", "text"):
        for text, hashed in db.execute(f"SELECT text, hash FROM {table}"):
            assert hash_bytes(text) == hashed & MASK
    rows = db.execute("SELECT seq, name, step, row FROM record ORDER BY seq").fetchall()
    assert len(rows) == len(ARRAYS)
    for (seq, name, step, row), (text, array, path, _) in zip(rows, ARRAYS, strict=True):
        assert names[name].decode() == text
        numbers, at = [], 0
        while len(numbers) < 28 + array.ndim:
            value = shift = 0
            while True:
                byte = row[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            numbers.append(value)
        assert numbers[2] == (F32 if array.dtype == np.float32 else I64)
        assert numbers[10] == array.nbytes
        assert numbers[12] == 12  # line
        assert texts[numbers[18]] == path
        assert numbers[27] == array.ndim
        assert numbers[28:] == list(array.shape)
        *_, mean, _norm, hashed, time_ns = struct.unpack("<8s8sddQQ", row[at:-4])
        if array.size:
            assert mean == pytest.approx(array.astype(np.float64).mean())
            assert hashed == hash_bytes(array.tobytes())
        assert time_ns == 1_700_000_000_000_000_000 + seq
        where = struct.pack("<QQq", seq, name, step)
        assert struct.unpack("<I", row[-4:])[0] == (hash_bytes(row[:-4]) ^ hash_bytes(where)) & 0xFFFFFFFF


@pytest.mark.parametrize("place", [4096 + 1024 + 7, 4096 + 1024 + 256 + 10, 40])
def test_damage_is_told(recording: pathlib.Path, place: int) -> None:
    path = recording / "rank0" / "attempt0-000000.tap"
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    assert run("verify", recording).returncode == 1
    problems = [p for p in lines("verify", "--json", recording) if p.get("type") == "problem"]
    assert {p["problem"] for p in problems} == {"corrupt"}
    left = [r["name"] for r in lines("ls", "--json", recording) if "name" in r]
    assert left == [a[0] for a in ARRAYS][0 if place == 40 else 1:]


def test_payload_damage_is_told(recording: pathlib.Path) -> None:
    for record, (name, array, _, _) in zip([r for r in lines("ls", "--json", recording) if "name" in r], ARRAYS,
                                           strict=True):
        if not array.nbytes:
            continue
        path = recording / record["file"]
        before = path.read_bytes()
        data = bytearray(before)
        data[record["offset"] + array.nbytes - 1] ^= 0x80
        path.write_bytes(data)
        problems = [p for p in lines("verify", "--json", recording) if p.get("type") == "problem"]
        assert [p["problem"] for p in problems] == ["corrupt"]
        assert problems[0]["name"].split("[")[0] == name  # the path follows in brackets
        path.write_bytes(before)


def test_lost_and_unfinished(tmp_path: pathlib.Path) -> None:
    segment = Segment()
    segment.add(DATA, "x", np.ones(3, np.float32))
    segment.add(LOST, "y", step=7, count=4, reason=5)
    write_run(tmp_path / "run", [segment], ended="")
    problems = [p for p in lines("verify", "--json", tmp_path / "run") if p.get("type") == "problem"]
    first = problems[0]
    assert (first["problem"], first["name"], first["step"], first["count"]) == ("dropped", "y", 7, 4)
    assert {p["problem"] for p in problems} == {"dropped", "unfinished"}
