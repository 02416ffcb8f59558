"""The tap_file calls through ctypes, and what they refuse. The other test_format files use the classes here."""

import ctypes as C
import os
import pathlib

import numpy as np
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIB = C.CDLL(os.environ.get("TENSORTAP_LIBRARY") or str(ROOT / "build/dev/libtensortap.so"))


class Error(C.Structure):
    _fields_ = [("status", C.c_int), ("sys_errno", C.c_int), ("file", C.c_char_p), ("line", C.c_int),
                ("message", C.c_char * 1000)]


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("dtype", C.c_int), ("ndim", C.c_int32),
                ("shape", C.POINTER(C.c_int64)), ("strides", C.POINTER(C.c_int64))]


class Entry(C.Structure):
    _fields_ = [("size", C.c_size_t), ("name", C.c_char_p), ("value_type", C.c_int), ("tensor", Tensor),
                ("number", C.c_double), ("imag", C.c_double), ("integer", C.c_int64), ("text", C.c_char_p),
                ("offset", C.c_uint64)]

    def __init__(self):
        super().__init__(size=C.sizeof(Entry))


class DtypeInfo(C.Structure):
    _fields_ = [("dtype", C.c_int), ("bytes", C.c_uint8), ("values", C.c_uint8), ("kind", C.c_char),
                ("name", C.c_char_p), ("numpy", C.c_char_p), ("torch", C.c_char_p), ("torch_storage", C.c_char_p),
                ("safetensors", C.c_char_p), ("mindspore", C.c_char_p), ("code", C.c_uint8), ("bits", C.c_uint8)]


LIB.tap_file_open.argtypes = [C.c_char_p, C.POINTER(C.c_void_p), C.POINTER(Error)]
LIB.tap_file_format.restype = C.c_char_p
LIB.tap_file_format.argtypes = [C.c_void_p]
LIB.tap_file_count.restype = C.c_size_t
LIB.tap_file_count.argtypes = [C.c_void_p]
LIB.tap_file_get.argtypes = [C.c_void_p, C.c_size_t, C.POINTER(Entry), C.POINTER(Error)]
LIB.tap_file_close.argtypes = [C.c_void_p]
LIB.tap_file_write.argtypes = [C.c_char_p, C.c_char_p, C.POINTER(Tensor), C.POINTER(C.c_char_p), C.c_size_t, C.c_bool,
                               C.POINTER(Error)]
LIB.tap_dtype_find.argtypes = [C.c_char_p]
LIB.tap_dtype_describe.restype = C.POINTER(DtypeInfo)
LIB.tap_status_name.restype = C.c_char_p

TENSOR, NONE, BOOL, INT, FLOAT, COMPLEX, STR, BYTES, LIST, TUPLE, DICT, META = range(12)

TORCH_DTYPES = [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16,
                torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
                torch.complex32, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
                torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2]
NUMPY_DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]


class TapError(Exception):
    """A call failed: args are the status name and the message."""


def check(status, err):
    if status:
        raise TapError(LIB.tap_status_name(status).decode(), err.message.decode())


def describe(dtype):
    return LIB.tap_dtype_describe(dtype).contents


def view(value):
    """A Tensor over a numpy array's or a torch tensor's memory; keep the value alive."""
    if isinstance(value, torch.Tensor):
        name, shape, strides, data = str(value.dtype), value.shape, value.stride(), value.data_ptr()
    else:
        name, shape, data = str(value.dtype), value.shape, value.ctypes.data
        strides = [s // value.itemsize for s in value.strides]
    many = C.c_int64 * max(len(shape), 1)
    dtype = LIB.tap_dtype_find(name.encode())
    assert dtype, name
    return Tensor(data, dtype, len(shape), many(*shape), many(*strides))


def write(path, file_format, values, names=None, convert=False):
    """tap_file_write of arrays or tensors."""
    views = (Tensor * max(len(values), 1))(*[view(v) for v in values])
    texts = (C.c_char_p * len(names))(*[n.encode() if isinstance(n, str) else n for n in names]) if names else None
    err = Error()
    check(LIB.tap_file_write(os.fsencode(path), file_format.encode(), views, texts, len(values), convert, err), err)


def raw(tensor):
    """(dtype name, shape, row-major bytes) of an Entry's tensor."""
    info = describe(tensor.dtype)
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    if 0 in shape:
        return info.name.decode(), shape, b""
    size = info.bytes
    strides = [tensor.strides[i] * size for i in range(tensor.ndim)] if tensor.strides else None
    if strides is None:
        strides, step = [], size
        for n in reversed(shape):
            strides.insert(0, step)
            step *= n
    extent = size + sum((n - 1) * s for n, s in zip(shape, strides))
    assert tensor.data % min(size, 8) == 0, "data is not aligned"
    memory = np.frombuffer((C.c_uint8 * extent).from_address(tensor.data), dtype=f"V{size}", count=1)
    array = np.lib.stride_tricks.as_strided(memory, shape, strides)
    return info.name.decode(), shape, array.tobytes()


class Leaf:
    def __init__(self, entry):
        self.name = entry.name.decode()
        self.type = entry.value_type
        self.offset = entry.offset
        self.integer, self.number, self.imag, self.text = entry.integer, entry.number, entry.imag, entry.text.decode()
        if self.type in (TENSOR, META):
            shape = [entry.tensor.shape[i] for i in range(entry.tensor.ndim)]
            self.dtype, self.shape, self.data = (raw(entry.tensor) if self.type == TENSOR else
                                                 (describe(entry.tensor.dtype).name.decode(), shape, b""))
            self.strides = ([entry.tensor.strides[i] for i in range(entry.tensor.ndim)]
                            if entry.tensor.strides else None)

    def equals(self, value):
        """Same type, shape and bits as an array or tensor."""
        if isinstance(value, torch.Tensor):
            name, data = str(value.dtype)[6:], bits(value)
        else:
            name, data = str(value.dtype.newbyteorder("=")), np.ascontiguousarray(value).astype(
                value.dtype.newbyteorder("<")).tobytes()
        return self.dtype == name and self.shape == list(value.shape) and self.data == data


def bits(tensor):
    """The row-major bytes of a torch tensor of any dtype."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.numel() == 0:
        return b""
    return flat.view(torch.uint8).numpy().tobytes()


def read(path):
    """(format, leaves) of a file."""
    handle, err = C.c_void_p(), Error()
    check(LIB.tap_file_open(os.fsencode(path), handle, err), err)
    try:
        leaves = []
        for i in range(LIB.tap_file_count(handle)):
            entry = Entry()
            check(LIB.tap_file_get(handle, i, entry, err), err)
            leaves.append(Leaf(entry))
        return LIB.tap_file_format(handle).decode(), leaves
    finally:
        LIB.tap_file_close(handle)


def sample(dtype, shape=(3, 4), seed=0):
    """Random bits as a torch tensor of any dtype (bool: only 0 and 1)."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty(0, dtype=dtype).element_size()
    count = int(np.prod(shape)) * size
    data = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def refused(path, status):
    """The message of a refused read."""
    with pytest.raises(TapError) as info:
        read(path)
    assert info.value.args[0] == status, info.value.args
    return info.value.args[1]


def test_layout_of_structs_matches_the_header():
    assert describe(LIB.tap_dtype_find(b"float32")).numpy == b"<f4"
    assert describe(LIB.tap_dtype_find(b"torch.bfloat16")).torch_storage == b"BFloat16Storage"


def test_unknown_files(tmp_path):
    path = tmp_path / "x.bin"
    assert "cannot open" in refused(path, "E_NOTFOUND")
    path.write_bytes(b"")
    assert refused(path, "E_TRUNCATED") == (
        f"{path}: the file is empty; the writer was killed, run: tensortap verify DIR")
    path.write_bytes(b"hello, this is text")
    assert "neither npy, torch zip archive, safetensors nor MindSpore print file" in refused(path, "E_FORMAT")
    assert "is not a plain file" in refused(tmp_path, "E_FORMAT")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a plain file" in refused(tmp_path / "pipe", "E_FORMAT")
    torch.save(torch.ones(2), path, _use_new_zipfile_serialization=False)
    assert "torch.save(torch.load(path), path)" in refused(path, "E_UNSUPPORTED")


def test_write_refusals(tmp_path):
    with pytest.raises(TapError, match="is not one of npy, pt, safetensors"):
        write(tmp_path / "x", "csv", [np.ones(2)])
    with pytest.raises(TapError, match="holds one tensor, not 2"):
        write(tmp_path / "x", "npy", [np.ones(2), np.ones(2)])
    with pytest.raises(TapError, match="numpy has no bfloat16; convert it to float32 or use format pt"):
        write(tmp_path / "x", "npy", [torch.ones(2, dtype=torch.bfloat16)])
    with pytest.raises(TapError, match="numpy has no complex32; convert it to complex64"):
        write(tmp_path / "x", "npy", [sample(torch.complex32)])
    err = Error()
    bad = Tensor(None, 12, 1, (C.c_int64 * 1)(3), None)
    with pytest.raises(TapError, match="tensor 0 is not valid"):
        check(LIB.tap_file_write(b"x", b"npy", bad, None, 1, False, err), err)
    assert list(tmp_path.iterdir()) == []


def test_missing_directories_are_made_and_no_temporary_stays(tmp_path):
    write(tmp_path / "a/b/x.npy", "npy", [np.ones(2)])
    write(tmp_path / "a/b/x.npy", "npy", [np.zeros(2)])
    assert [p.name for p in (tmp_path / "a/b").iterdir()] == ["x.npy"]
    assert (np.load(tmp_path / "a/b/x.npy") == 0).all()
    assert (tmp_path / "a/b/x.npy").stat().st_mode & 0o777 == 0o640
