"""Tensors above 4 GiB. What is written comes from one element through a zero stride; what is read may be a sparse file."""

import ctypes as C
import os
import shutil
import zipfile

import numpy as np
import pytest
import torch
from test_format_native import LIB, Entry, Error, Tensor, check, describe, view

COUNT = 4400 * 1024 * 1024  # bytes: 4.3 GiB
NEEDED = 12 * 1024**3


@pytest.fixture
def folder(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    if free < NEEDED:
        pytest.skip(f"{free >> 30} GiB of disk are free, the test needs {NEEDED >> 30}")
    yield tmp_path
    for path in tmp_path.iterdir():
        path.unlink()


def repeated(value, count):
    return Tensor(value.ctypes.data, LIB.tap_dtype_find(str(value.dtype).encode()), 2,
                  (C.c_int64 * 2)(2, count // 2), (C.c_int64 * 2)(0, 0))


def write_views(path, file_format, views, names=None):
    err = Error()
    texts = (C.c_char_p * len(names))(*names) if names else None
    check(LIB.tap_file_write(os.fsencode(path), file_format, (Tensor * len(views))(*views), texts, len(views), False,
                             err), err)


def ends(path, index):
    """(dtype, shape, first value, last value, offset) as our reader maps it."""
    handle, err, entry = C.c_void_p(), Error(), Entry()
    check(LIB.tap_file_open(os.fsencode(path), handle, err), err)
    try:
        check(LIB.tap_file_get(handle, index, entry, err), err)
        info, tensor = describe(entry.tensor.dtype), entry.tensor
        shape = [tensor.shape[i] for i in range(tensor.ndim)]
        last = (int(np.prod(shape)) - 1) * info.bytes
        return (info.name.decode(), shape, C.string_at(tensor.data, info.bytes),
                C.string_at(tensor.data + last, info.bytes), entry.offset)
    finally:
        LIB.tap_file_close(handle)


def test_npy(folder):
    value = np.array(0x5A, dtype=np.uint8)
    write_views(folder / "x.npy", b"npy", [repeated(value, COUNT)])
    array = np.load(folder / "x.npy", mmap_mode="r")
    assert array.shape == (2, COUNT // 2) and array.dtype == np.uint8
    assert array[0, 0] == array[-1, -1] == array[1, 12345] == 0x5A
    assert (folder / "x.npy").stat().st_size == 128 + COUNT
    assert ends(folder / "x.npy", 0) == ("uint8", [2, COUNT // 2], b"Z", b"Z", 128)


def test_pt(folder):
    """The second tensor's header lies above 4 GiB too; zipfile checks the CRC-32 of both."""
    value, small = np.array(-7, dtype=np.int32), torch.arange(5)
    write_views(folder / "x.pt", b"pt", [repeated(value, COUNT // 4), view(small)])
    big, again = torch.load(folder / "x.pt", weights_only=True, mmap=True)
    assert big.shape == (2, COUNT // 8) and big.dtype == torch.int32 and big[0, 0] == big[-1, -1] == -7
    assert torch.equal(again, small)
    with zipfile.ZipFile(folder / "x.pt") as archive:
        assert archive.testzip() is None
        assert archive.getinfo("x/data/0").file_size == COUNT
        assert archive.getinfo("x/data/1").header_offset > 2**32
    four = np.array(-7, dtype="<i4").tobytes()
    name, shape, first, last, offset = ends(folder / "x.pt", 0)
    assert (name, shape, first, last) == ("int32", [2, COUNT // 8], four, four) and offset % 64 == 0
    name, shape, first, last, offset = ends(folder / "x.pt", 1)
    assert (name, shape, first[0], last[0]) == ("int64", [5], 0, 4) and offset % 64 == 0 and offset > 2**32


def sparse(path, head, hole, tail):
    with open(path, "wb") as out:
        out.write(head)
        out.seek(hole, os.SEEK_CUR)
        out.write(tail)


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def test_safetensors_and_print_are_read(tmp_path):
    header = b'{"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]},' % (COUNT, COUNT)
    header += b'"y":{"dtype":"I32","shape":[1],"data_offsets":[%d,%d]}}' % (COUNT, COUNT + 4)
    header += b" " * (-len(header) % 8)
    path = tmp_path / "x.safetensors"
    sparse(path, len(header).to_bytes(8, "little") + header, COUNT - 1, b"\x07\x2a\0\0\0")
    assert ends(path, 0)[1:4] == ([COUNT], b"\0", b"\x07")
    assert ends(path, 1)[1:4] == ([1], b"\x2a\0\0\0", b"\x2a\0\0\0")
    inner = b"\x08" + varint(COUNT) + b"\x12\x05UInt8\x1a" + varint(COUNT)
    value = b"\x12" + varint(len(inner) + COUNT) + inner
    path = tmp_path / "print"
    sparse(path, b"\x0a" + varint(len(value) + COUNT) + value, COUNT - 1, b"\x07\x0a\x05\x0a\x03end")
    assert ends(path, 0)[:4] == ("uint8", [COUNT], b"\0", b"\x07")
