"""safetensors files against the safetensors package, both ways."""

import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from test_format_native import TORCH_DTYPES, TapError, bits, read, refused, sample, write

HELD = [d for d in TORCH_DTYPES if d not in (torch.complex32, torch.complex128)]


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)


@pytest.mark.parametrize("dtype", HELD, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)], ids=str)
def test_one_tensor_both_ways(tmp_path, dtype, shape):
    if dtype == torch.float4_e2m1fn_x2 and shape == ():
        pytest.skip("a packed scalar has no shape in safetensors; its refusal is tested below")
    value = sample(dtype, shape)
    write(tmp_path / "a", "safetensors", [value], ["x"])
    assert same(safetensors.torch.load_file(tmp_path / "a")["x"], value)
    safetensors.torch.save_file({"y": value}, tmp_path / "b", metadata={"format": "pt"})
    for name, path in (("x", tmp_path / "a"), ("y", tmp_path / "b")):
        kind, (leaf,) = read(path)
        assert kind == "safetensors" and leaf.name == name and leaf.equals(value)


def test_many_tensors_are_aligned_and_keep_their_names(tmp_path):
    names = ["a", "层.weight", 'quote " \\ back', "new\nline", "", "\x7f", "a" * 5000] + [f"t{i}" for i in range(200)]
    values = [sample(HELD[i % len(HELD)], (i % 4, 3), seed=i) for i in range(len(names))]
    write(tmp_path / "x", "safetensors", values, names)
    loaded = safetensors.torch.load_file(tmp_path / "x")
    assert set(loaded) == set(names) and all(same(loaded[n], v) for n, v in zip(names, values))
    _, leaves = read(tmp_path / "x")
    by_name = {leaf.name: leaf for leaf in leaves}
    for name, value in zip(names, values):
        assert by_name[name].equals(value) and by_name[name].offset % value.element_size() == 0
    assert min(leaf.offset for leaf in leaves) % 64 == 0


def test_views_and_conversion(tmp_path):
    base = torch.randn(300, 200)
    halves = torch.view_as_complex(torch.randn(4, 3, 2).half())
    doubles = torch.randn(3, dtype=torch.complex128)
    write(tmp_path / "x", "safetensors", [base.T, base[::7, 3:], halves, doubles], list("abcd"), convert=True)
    loaded = safetensors.torch.load_file(tmp_path / "x")
    assert same(loaded["a"], base.T.contiguous()) and same(loaded["b"], base[::7, 3:].contiguous())
    assert same(loaded["c"], halves.to(torch.complex64)) and same(loaded["d"], doubles.to(torch.complex64))


def test_no_tensors(tmp_path):
    write(tmp_path / "x", "safetensors", [], [])
    assert safetensors.torch.load_file(tmp_path / "x") == {}
    assert read(tmp_path / "x") == ("safetensors", [])


def test_numpy_files(tmp_path):
    value = {"a": np.arange(6, dtype="<i2").reshape(2, 3), "b": np.array(3.5)}
    safetensors.numpy.save_file(value, tmp_path / "x")
    _, leaves = read(tmp_path / "x")
    assert all(leaf.equals(value[leaf.name]) for leaf in leaves) and len(leaves) == 2


@pytest.mark.parametrize("values,names,message", [
    ([torch.ones(1)], None, "safetensors needs a name for each tensor"),
    ([torch.ones(1)] * 2, ["a", "a"], "two tensors are named a; choose another name"),
    ([torch.ones(1)], [b"\xff"], "the name of tensor 0 is not UTF-8 or is reserved; choose another"),
    ([torch.ones(1)], ["__metadata__"], "the name of tensor 0 is not UTF-8 or is reserved; choose another"),
    ([sample(torch.complex32)], ["a"], "safetensors has no complex32; convert it to complex64 or use format pt"),
    ([sample(torch.float4_e2m1fn_x2, ())], ["a"], "safetensors has no float4_e2m1fn_x2; convert it to float32"),
])
def test_write_refusals(tmp_path, values, names, message):
    with pytest.raises(TapError) as info:
        write(tmp_path / "x", "safetensors", values, names)
    assert f"cannot write {tmp_path / 'x'}: {message}" in info.value.args[1]
    assert list(tmp_path.iterdir()) == []


def file_of(path, header, data=b"\0" * 24, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def x(dtype="F32", shape=(2, 3), offsets=(0, 24)):
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize("header,status,message", [
    (x(offsets=(0, 28)), "E_TRUNCATED",
     "truncated: header promises 28 bytes, file has 24; the writer was killed, run: tensortap verify DIR"),
    (x(offsets=(0, 2**63 - 1)), "E_TRUNCATED", "truncated: header promises 9223372036854775807 bytes, file has 24"),
    (x(offsets=(0, 2**70)), "E_TRUNCATED", "truncated: header promises 9223372036854775807 bytes, file has 24"),
    (x(offsets=(24, 0)), "E_FORMAT", "the tensor x is damaged: its data_offsets are not two numbers in order; write"),
    (x(offsets=(-24, 0)), "E_FORMAT", "the tensor x is damaged: its data_offsets are not two numbers in order; write"),
    (x(offsets=(0, 12)), "E_FORMAT", "the tensor x is damaged: its shape and data_offsets disagree; write the file"),
    (x(offsets=(12, 24)), "E_TRUNCATED", "truncated: header promises 24 bytes, file has 12"),
    (x(shape=(2**62, 2**62)), "E_LIMIT", "a shape is negative or larger than any memory; the file is damaged"),
    (x(shape=(-2, 3)), "E_FORMAT", "the tensor x is damaged: its shape is not a list of sizes; write the file again"),
    (x(shape=(2.0, 3)), "E_FORMAT", "the tensor x is damaged: its shape is not a list of sizes; write the file again"),
    (x(shape=(1,) * 65), "E_FORMAT", "the tensor x is damaged: its shape is not a list of sizes; write the file again"),
    (x(shape="23"), "E_FORMAT", "the tensor x is damaged: its shape is not a list of sizes; write the file again"),
    (x(dtype="F4", shape=(3,)), "E_FORMAT", "the tensor x is damaged: its last dimension is not even; write the file"),
    (x(dtype="F6_E2M3"), "E_UNSUPPORTED",
     'the tensor x has dtype "F6_E2M3", which is not supported; convert it to F32 before saving'),
    (x(dtype=7), "E_UNSUPPORTED", "the tensor x has dtype 7, which is not supported; convert it to F32 before saving"),
    ({"x": {}}, "E_UNSUPPORTED", "the tensor x has dtype null, which is not supported"),
    ({"x": 1}, "E_FORMAT", "the tensor x is damaged: it is not described by an object; write the file again"),
    (b"{", "E_FORMAT", "the safetensors header is not a JSON object ("),
    (b"{}[]", "E_FORMAT", "the safetensors header is not a JSON object ("),
    (b"{}\0\0", "E_FORMAT", "the safetensors header is not a JSON object ("),
    (b'{"a":' + b"[" * 50 + b"]" * 50 + b"}", "E_FORMAT",
     "the safetensors header is not a JSON object (nesting too deep at byte"),
])
def test_hostile_headers(tmp_path, header, status, message):
    path = file_of(tmp_path / "x", header)
    assert refused(path, status).startswith(f"{path}: {message}")


def test_hostile_lengths(tmp_path):
    path = file_of(tmp_path / "x", b"{}", length=100_000_001)
    assert refused(path, "E_LIMIT") == (
        f"{path}: a safetensors header of 100000001 bytes is more than the 100000000 allowed; the file is damaged")
    path = file_of(tmp_path / "x", b"{}", length=1000)
    assert refused(path, "E_TRUNCATED").startswith(
        f"{path}: truncated: the safetensors header has 1000 bytes, the file 34; the writer was killed")


def test_every_truncation_is_refused(tmp_path):
    safetensors.torch.save_file({"x": torch.ones(3), "y": torch.ones(2)}, tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    for cut in range(len(whole)):
        (tmp_path / "y").write_bytes(whole[:cut])
        with pytest.raises(TapError):
            read(tmp_path / "y")
