"""npy files against numpy: byte-equal to numpy.save, and everything numpy writes is read."""

import io

import numpy as np
import pytest
import torch
from test_format_native import NUMPY_DTYPES, TENSOR, TapError, bits, read, refused, sample, write


def saved(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def random(dtype, shape):
    rng = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    data = rng.integers(0, 2 if dtype == "?" else 256, int(np.prod(shape)) * size, dtype=np.uint8)
    return data.view(dtype).reshape(shape)


SHAPES = [(), (0,), (1,), (7,), (3, 0), (0, 3), (2, 3), (1, 1, 1), (5, 4, 3), (2,) * 10, (1,) * 64, (123456,)]


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_byte_equal_to_numpy_and_back(tmp_path, dtype, shape):
    array = random(dtype, shape)
    write(tmp_path / "x.npy", "npy", [array])
    assert (tmp_path / "x.npy").read_bytes() == saved(array)
    kind, (leaf,) = read(tmp_path / "x.npy")
    assert kind == "npy" and leaf.name == "" and leaf.type == TENSOR and leaf.equals(array)
    assert leaf.offset % 64 == 0


STRIDED = {
    "transposed": lambda a: a.T, "step": lambda a: a[::2, ::3], "reversed": lambda a: a[::-1, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape), "slice": lambda a: a[2:5, 1:7], "row": lambda a: a[3],
    "column": lambda a: a[:, 3], "fortran slice": lambda a: a.T[:, 2:5], "one column": lambda a: a[:, 3:4],
    "permuted": lambda a: a.reshape(5, 8, 10).transpose(1, 2, 0), "empty": lambda a: a[:0, ::2],
}


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "c16"])
@pytest.mark.parametrize("how", STRIDED)
def test_strided_is_byte_equal_too(tmp_path, dtype, how):
    array = STRIDED[how](random(dtype, (20, 20)))
    write(tmp_path / "x.npy", "npy", [array])
    assert (tmp_path / "x.npy").read_bytes() == saved(array)


@pytest.mark.parametrize("shape,axes", [((700, 3, 900), (2, 1, 0)), ((3, 500_000), None), ((2_000_000, 2), None),
                                        ((2, 3, 400_000), None)])
def test_strided_larger_than_a_block(tmp_path, shape, axes):
    array = random("i4", shape).transpose(axes) if axes else random("i4", shape)[..., ::2]
    array = array[::1, ::1] if axes is None else array[1:]
    write(tmp_path / "x.npy", "npy", [array])
    assert (tmp_path / "x.npy").read_bytes() == saved(array)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
                                   torch.float8_e5m2fnuz, torch.float8_e8m0fnu], ids=str)
def test_convert_to_float32(tmp_path, dtype):
    for value in (sample(dtype, (64, 64)), sample(dtype, (64, 64)).T, sample(dtype, (700, 1200))[:, ::2]):
        write(tmp_path / "x.npy", "npy", [value], convert=True)
        got = np.load(tmp_path / "x.npy")
        expected = value.float().numpy()
        assert got.dtype == np.float32 and got.shape == expected.shape
        nan = np.isnan(expected)
        assert (np.isnan(got) == nan).all() and (got[~nan].view(np.uint32) == expected[~nan].view(np.uint32)).all()
        assert got.flags.f_contiguous == expected.flags.f_contiguous


def test_convert_complex32(tmp_path):
    value = torch.view_as_complex(torch.randn(5, 7, 2).half())
    write(tmp_path / "x.npy", "npy", [value], convert=True)
    got = np.load(tmp_path / "x.npy")
    assert got.dtype == np.complex64 and (got == value.to(torch.complex64).numpy()).all()


def test_convert_float4_unpacks_the_last_dimension(tmp_path):
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    packed = torch.arange(256, dtype=torch.uint8).reshape(2, 128)
    expected = np.array([[values[b & 15], values[b >> 4]] for b in range(256)], dtype=np.float32).reshape(2, 256)
    for value, want in ((packed, expected), (packed.T, expected.reshape(2, 128, 2).transpose(1, 0, 2).reshape(128, 4)),
                        (packed[0, 5], expected[0, 10:12])):
        write(tmp_path / "x.npy", "npy", [value.view(torch.float4_e2m1fn_x2)], convert=True)
        got = np.load(tmp_path / "x.npy")
        assert got.shape == want.shape and got.tobytes() == want.tobytes()


def test_convert_leaves_types_numpy_has(tmp_path):
    array = random("f2", (4, 5))
    write(tmp_path / "x.npy", "npy", [array], convert=True)
    assert (tmp_path / "x.npy").read_bytes() == saved(array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i2", ">c8", ">c16", ">u8", "|u1", "|b1"])
def test_reads_versions_orders_and_byte_orders(tmp_path, version, order, dtype):
    array = np.asarray(random(dtype[1:] if dtype[1:] != "b1" else "?", (3, 4, 5)).astype(dtype), order=order)
    with open(tmp_path / "x.npy", "wb") as out:
        np.lib.format.write_array(out, array, version=version)
    _, (leaf,) = read(tmp_path / "x.npy")
    assert leaf.equals(array)
    assert leaf.strides == ([1, 3, 12] if order == "F" else None)


def with_header(path, text, data=b"\0" * 64, version=1):
    head = text.encode()
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + len(head).to_bytes(2 if version == 1 else 4, "little")
                     + head + data)
    return path


@pytest.mark.parametrize("text", [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }",
    '{"shape":(2,3),"fortran_order":False,"descr":"<f4"}',
    "  {'descr': 'f4', 'fortran_order' : False , 'shape': ( 2 , 3 , ) }  \n",
    "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3)}",
])
def test_reads_other_spellings_unaligned(tmp_path, text):
    path = with_header(tmp_path / "x.npy", text, np.arange(6, dtype="<f4").tobytes())
    _, (leaf,) = read(path)
    assert leaf.equals(np.arange(6, dtype="<f4").reshape(2, 3))


def test_reads_mindspore_bfloat16(tmp_path):
    value = torch.arange(6).to(torch.bfloat16)
    path = with_header(tmp_path / "x.npy", "{'descr': '<T2', 'fortran_order': False, 'shape': (6,), }", bits(value))
    _, (leaf,) = read(path)
    assert leaf.equals(value)


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }"


@pytest.mark.parametrize("text,status,message", [
    (GOOD % "4096,", "E_TRUNCATED",
     "truncated: header promises 16384 bytes, file has 64; the writer was killed, run: tensortap verify DIR"),
    (GOOD % "9223372036854775807, 9", "E_LIMIT",
     "a shape is negative or larger than any memory; the file is damaged"),
    (GOOD % "99999999999999999999,", "E_LIMIT", "a dimension does not fit 64 bits; the file is damaged"),
    (GOOD % ("1," * 65), "E_LIMIT", "has more than 64 dimensions"),
    (GOOD % "-1,", "E_FORMAT", 'the npy header is damaged: expected a dimension at "-1,), }"; write the file again'),
    (GOOD % "2 2", "E_FORMAT", 'the npy header is damaged: expected a comma at "2), }"; write the file again'),
    ("{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (2,), }", "E_UNSUPPORTED",
     "structured dtype [('a', '<f4'), ('b', '<i4')] is not supported; save each field as a file of its own: "
     "np.save(path, array[field])"),
    ("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "E_UNSUPPORTED",
     "dtype '|O' is not supported, only bool, integers, float16 to float64, complex64 and complex128 are; convert "
     "with array.astype before numpy.save"),
    ("{'descr': '<f4', 'shape': (2,), }", "E_FORMAT",
     "the npy header lacks descr, fortran_order or shape; write the file again"),
    ("{'descr': '<f4', 'what': 1}", "E_FORMAT",
     'the npy header has an unknown key "what"; write the file again with numpy.save'),
    ("{'descr': '<f4', 'fortran_order': 0", "E_FORMAT",
     'the npy header is damaged: expected True or False at "0"; write the file again'),
    ("", "E_FORMAT", 'the npy header is damaged: expected a dict at ""; write the file again'),
    ("{'descr': '<f4", "E_FORMAT", "the npy header is damaged: expected the dtype at \"'<f4\"; write the file again"),
])
def test_refuses_damaged_headers(tmp_path, text, status, message):
    path = with_header(tmp_path / "x.npy", text)
    assert refused(path, status) == f"{path}: {message}"


def test_refuses_versions_and_lengths(tmp_path):
    path = with_header(tmp_path / "x.npy", GOOD % "2,", version=4)
    assert refused(path, "E_UNSUPPORTED") == f"{path}: npy version 4.0 is not known, only 1.0 to 3.0"
    path.write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
    assert "an npy header of 4294967295 bytes is more than the 1048576 allowed" in refused(path, "E_LIMIT")
    path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{")
    assert "the npy header has 65535 bytes, the file 11" in refused(path, "E_TRUNCATED")


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    whole = saved(np.arange(5, dtype="<i8"))
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(TapError):
            read(path)
