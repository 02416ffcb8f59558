"""The tensor part of libtensortap through ctypes, for tests that use numpy and torch as oracles."""

import ctypes as C
import os
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = os.environ.get("TENSORTAP_LIBRARY", str(ROOT / "build" / "dev" / "libtensortap.so"))

STATS, HASH, HEALTH = 1, 2, 4
DTYPES = {
    "bool": 1, "uint8": 2, "uint16": 3, "uint32": 4, "uint64": 5, "int8": 6, "int16": 7, "int32": 8, "int64": 9,
    "float16": 10, "bfloat16": 11, "float32": 12, "float64": 13, "complex32": 14, "complex64": 15, "complex128": 16,
    "float8_e4m3fn": 17, "float8_e5m2": 18, "float8_e4m3fnuz": 19, "float8_e5m2fnuz": 20, "float8_e8m0fnu": 21,
    "float4_e2m1fn_x2": 22,
}


class Number(C.Union):
    _fields_ = [("f", C.c_double), ("i", C.c_int64), ("u", C.c_uint64)]


class Stats(C.Structure):
    _fields_ = [("count", C.c_uint64), ("nan", C.c_uint64), ("pos_inf", C.c_uint64), ("neg_inf", C.c_uint64),
                ("zero", C.c_uint64), ("min", Number), ("max", Number), ("mean", C.c_double), ("norm", C.c_double)]


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("dtype", C.c_int), ("ndim", C.c_int32), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64))]


class Error(C.Structure):
    _fields_ = [("status", C.c_int), ("sys_errno", C.c_int), ("file", C.c_char_p), ("line", C.c_int),
                ("message", C.c_char * 1000)]


class PrintOptions(C.Structure):
    _fields_ = [("size", C.c_size_t), ("precision", C.c_int), ("threshold", C.c_int), ("edge_items", C.c_int),
                ("line_width", C.c_int)]


WRITE = C.CFUNCTYPE(None, C.c_void_p, C.POINTER(C.c_char), C.c_size_t)

lib = C.CDLL(PATH)
lib.tap_tensor_scan.argtypes = [C.POINTER(Tensor), C.c_uint, C.c_void_p, C.POINTER(Stats), C.POINTER(C.c_uint64),
                                C.POINTER(Error)]
lib.tap_tensor_convert.argtypes = [C.POINTER(Tensor), C.c_int, C.c_void_p, C.POINTER(Error)]
lib.tap_tensor_value.argtypes = [C.POINTER(Tensor), C.c_int64]
lib.tap_tensor_value.restype = C.c_double
lib.tap_hash_bytes.argtypes = [C.c_void_p, C.c_size_t]
lib.tap_hash_bytes.restype = C.c_uint64
for name in ("tap_stats_ieee_mean", "tap_stats_ieee_norm"):
    getattr(lib, name).argtypes = [C.POINTER(Stats)]
    getattr(lib, name).restype = C.c_double

lib.tap_print_options_init_sized.argtypes = [C.POINTER(PrintOptions), C.c_size_t]
lib.tap_print_options_init_sized.restype = None
lib.tap_tensor_print.argtypes = [C.POINTER(Tensor), C.POINTER(PrintOptions), WRITE, C.c_void_p, C.POINTER(Error)]
lib.tap_tensor_histogram.argtypes = [C.POINTER(Tensor), C.c_double, C.c_double, C.POINTER(C.c_uint64), C.c_int,
                                     C.POINTER(Error)]

CARRIERS = {"bfloat16": np.uint16, "complex32": np.uint32}


def carrier(name):
    """The numpy dtype whose arrays hold this dtype's bytes."""
    return np.dtype(CARRIERS.get(name, np.uint8 if name.startswith(("float8", "float4")) else name))


def tensor(array, name=None):
    """A view of a numpy array (which must stay alive); name: the tensortap dtype when it is not the array's own."""
    item = array.dtype.itemsize
    assert all(s % item == 0 for s in array.strides)
    shape = (C.c_int64 * max(1, array.ndim))(*array.shape)
    strides = (C.c_int64 * max(1, array.ndim))(*[s // item for s in array.strides])
    view = Tensor(array.__array_interface__["data"][0], DTYPES[name or array.dtype.name], array.ndim, shape, strides)
    view.keep = (array, shape, strides)
    return view


def scan(array, name=None, what=STATS | HASH, copy=True):
    """(Stats, hash, row-major bytes)"""
    stats, digest, err = Stats(), C.c_uint64(), Error()
    out = (C.c_char * max(1, array.nbytes))()
    status = lib.tap_tensor_scan(C.byref(tensor(array, name)), what, out if copy else None, C.byref(stats),
                                 C.byref(digest), C.byref(err))
    assert status == 0, err.message.decode()
    return stats, digest.value, bytes(out)[: array.nbytes]


def convert(array, to, name=None):
    """Raw bytes of the array's values as dtype `to`."""
    err = Error()
    out = (C.c_char * (array.size * 16 + 16))()
    status = lib.tap_tensor_convert(C.byref(tensor(array, name)), DTYPES[to], out, C.byref(err))
    assert status == 0, err.message.decode()
    return bytes(out)


def text(array, name=None, **options):
    """What tap_tensor_print writes."""
    opt, err, pieces = PrintOptions(), Error(), []
    lib.tap_print_options_init_sized(C.byref(opt), C.sizeof(opt))
    for key, value in options.items():
        setattr(opt, key, value)
    write = WRITE(lambda user, data, length: pieces.append(data[:length]))
    status = lib.tap_tensor_print(C.byref(tensor(array, name)), C.byref(opt), write, None, C.byref(err))
    assert status == 0, err.message.decode()
    return b"".join(pieces).decode()
