"""What the tests of the command share: the command itself, recordings to read, and a quiet environment."""

import os
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(os.environ.get("TENSORTAP", ROOT / "build/dev/tensortap")).resolve()
SCENARIOS = ["small", "changed", "lossy", "stats_only", "odd", "attempts", "hostile", "hostile_too"]

# messages of MindSpore's print.proto: (text or tensor type, shape, bytes)
PRINT_VM = [
    "_TS_SAVE_NAME:add",
    ("Float32", [4], b"\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40\x00\x00\xa0\x40"),
    ("Int32", [2], b"\x07\x00\x00\x00\x08\x00\x00\x00"),
    "_TS_SAVE_NAME:a/b",
    ("Int32", [2], b"\x01\x00\x00\x00\x02\x00\x00\x00"),
]
PRINT_GE = [
    "_TS_SAVE_NAME:add\nTensor(shape=[4], dtype=Float32, value=\n[2 3 4 5])",
    "_TS_SAVE_NAME:add\nTensor(shape=[2 2], dtype=Int64, value=\n[[1 -2] [3 9007199254740993]])",
    "_TS_SAVE_NAME:cut\nTensor(shape=[9], dtype=Float16, value=\n[1 2 ... 9])",
]


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(body)) + body


def print_file(items) -> bytes:
    out = b""
    for item in items:
        if isinstance(item, str):
            value = field(1, item.encode())
        else:
            dtype, shape, data = item
            dims = b"".join(b"\x08" + varint(d) for d in shape)
            value = field(2, dims + field(2, dtype.encode()) + field(3, data))
        out += field(1, value)
    return out


def npy(descr: str, shape: str, data: bytes) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def environment(home: Path) -> dict[str, str]:
    return {
        "PATH": f"{COMMAND.parent}:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TENSORTAP_WRITER": str(COMMAND),
        "TENSORTAP_ISA": "plain",
        "ASAN_OPTIONS": "detect_leaks=1",
    }


@pytest.fixture(scope="session")
def command() -> Path:
    assert COMMAND.exists(), f"{COMMAND} is not there: build first, or set TENSORTAP"
    return COMMAND


@pytest.fixture(scope="session")
def recorder(command, tmp_path_factory) -> Path:
    """record_fixture.c, built against the library beside the command."""
    program = tmp_path_factory.mktemp("build") / "record_fixture"
    source = Path(__file__).with_name("record_fixture.c")
    subprocess.run(
        [
            "cc",
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Werror",
            f"-I{ROOT / 'include'}",
            source,
            f"-L{command.parent}",
            f"-Wl,-rpath,{command.parent}",
            "-ltensortap",
            "-lm",
            "-o",
            program,
        ],
        check=True,
    )
    return program


@pytest.fixture(scope="session")
def runs(recorder, tmp_path_factory) -> Path:
    """A directory with every recording and file the golden tests name."""
    place = tmp_path_factory.mktemp("runs")
    for name in SCENARIOS:
        subprocess.run([recorder, name, place / name], check=True, env=environment(place), timeout=120)
    six = struct.pack("<6f", 1, 2, 3, 4, 0, -1)
    (place / "x.npy").write_bytes(npy("<f4", "(2, 3)", six))
    (place / "bad.npy").write_bytes(npy("<f4", "(2, 3)", b"1234"))
    (place / "vm.print").write_bytes(print_file(PRINT_VM))
    (place / "ge.print").write_bytes(print_file(PRINT_GE))
    return place


@pytest.fixture
def env(tmp_path) -> dict[str, str]:
    return environment(tmp_path)
