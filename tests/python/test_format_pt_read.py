"""Torch archives of any shape read back, and what is refused."""

import collections
import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch
from test_format_native import (BOOL, COMPLEX, DICT, FLOAT, INT, LIST, META, NONE, STR, TENSOR, TORCH_DTYPES, TUPLE,
                                TapError, read, refused, sample, write)


def saved(tmp_path, value, **options):
    torch.save(value, tmp_path / "x.pt", **options)
    kind, leaves = read(tmp_path / "x.pt")
    assert kind == "pt"
    return leaves


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4), (1,) * 30], ids=str)
def test_one_tensor(tmp_path, dtype, shape):
    value = sample(dtype, shape)
    (leaf,) = saved(tmp_path, value)
    assert leaf.name == "" and leaf.type == TENSOR and leaf.strides is None and leaf.equals(value)
    write(tmp_path / "y.pt", "pt", [value])
    _, (leaf,) = read(tmp_path / "y.pt")
    assert leaf.equals(value)


@pytest.mark.parametrize("how", [lambda t: t.T, lambda t: t[::2, 1::3], lambda t: t[5], lambda t: t[:, 7], lambda t: t[3:],
                                 lambda t: t[:1].expand(40, 30), lambda t: t[3:4, 3:4], lambda t: t[:0, ::2]])
def test_views_keep_strides(tmp_path, how):
    value = how(torch.randn(40, 30))
    (leaf,) = saved(tmp_path, value)
    assert leaf.equals(value)
    assert leaf.strides == (None if value.is_contiguous() else list(value.stride()))


def test_tensors_of_one_storage_are_mapped_once(tmp_path):
    base = torch.arange(100.)
    a, b = saved(tmp_path, [base[:50], base[50:]])
    assert a.equals(base[:50]) and b.equals(base[50:]) and b.offset - a.offset == 200 and a.offset % 64 == 0


def test_nested_values(tmp_path):
    value = {"a": [1, -2, 2**40, -2**63, True, False, None, 1.5, float("inf"), 3 - 4j, "text 层", torch.ones(2)],
             "b": {"c": (torch.zeros(1), ()), 7: [], None: {}, 2.5: torch.Size([2, 3]), True: "yes"},
             "d": torch.float32, "e": torch.device("cpu"), "layer.weight": torch.ones(3), "big": 2**64 - 1}
    leaves = {leaf.name: leaf for leaf in saved(tmp_path, value)}
    expected = [(INT, 1), (INT, -2), (INT, 2**40), (INT, -2**63), (BOOL, 1), (BOOL, 0), (NONE, 0), (FLOAT, 1.5),
                (FLOAT, float("inf"))]
    for i, (kind, number) in enumerate(expected):
        leaf = leaves[f"a.{i}"]
        assert leaf.type == kind and (leaf.number if kind == FLOAT else leaf.integer) == number
    assert (leaves["a.9"].type, leaves["a.9"].number, leaves["a.9"].imag) == (COMPLEX, 3, -4)
    assert (leaves["a.10"].type, leaves["a.10"].text) == (STR, "text 层")
    assert leaves["a.11"].equals(torch.ones(2)) and leaves["b.c.0"].equals(torch.zeros(1))
    assert leaves["b.c.1"].type == TUPLE and leaves["b.7"].type == LIST and leaves["b.None"].type == DICT
    assert [leaves[f"b.2.5.{i}"].integer for i in (0, 1)] == [2, 3] and leaves["b.True"].text == "yes"
    assert leaves["d"].text == "torch.float32" and leaves["e"].text == "cpu"
    assert leaves["layer.weight"].equals(torch.ones(3))
    assert leaves["big"].type == FLOAT and leaves["big"].number == 2.0**64
    assert len(leaves) == 12 + 7 + 4


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_state_dicts_and_parameters(tmp_path, protocol):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = model.state_dict()
    leaves = saved(tmp_path, state, pickle_protocol=protocol)
    assert [leaf.name for leaf in leaves] == list(state)
    assert all(leaf.equals(state[leaf.name]) for leaf in leaves)
    parameter = torch.nn.Parameter(torch.randn(3))
    marked = torch.randn(4)
    marked.note = "an attribute"
    marked_parameter = torch.nn.Parameter(torch.randn(2))
    marked_parameter.note = 1
    a, b, c, d = saved(tmp_path, [parameter, marked, marked_parameter, torch.randn(2, requires_grad=True)],
                       pickle_protocol=protocol)
    assert a.equals(parameter) and b.equals(marked) and c.equals(marked_parameter) and d.type == TENSOR


def test_optimizer_checkpoint(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    leaves = {leaf.name: leaf for leaf in saved(tmp_path, {"model": model.state_dict(), "optim": optimizer.state_dict(),
                                                           "epoch": 3})}
    assert leaves["epoch"].integer == 3
    assert leaves["optim.state.0.exp_avg"].equals(optimizer.state_dict()["state"][0]["exp_avg"])
    assert leaves["optim.param_groups.0.lr"].number == 0.001


def test_integers_meta_tensors_and_ordered_dicts(tmp_path):
    numbers = [-1, -129, -2**31, -2**31 - 1, -2**40, -2**55 - 3, 2**55 + 3, -2**70]
    leaves = saved(tmp_path, numbers)
    assert [leaf.integer for leaf in leaves[:-1]] == numbers[:-1] and leaves[-1].number == -2.0**70
    (leaf,) = saved(tmp_path, collections.OrderedDict(m=torch.empty(2, 3, dtype=torch.bfloat16, device="meta")))
    assert leaf.name == "m" and leaf.type == META and leaf.dtype == "bfloat16" and leaf.shape == [2, 3]


def test_many_tensors_and_memo_numbers_above_255(tmp_path):
    values = [torch.full((3,), float(i)) for i in range(3000)]
    leaves = saved(tmp_path, values)
    assert [leaf.name for leaf in leaves] == [str(i) for i in range(3000)]
    assert all(leaf.equals(value) for leaf, value in zip(leaves, values))


def test_shared_values_appear_twice(tmp_path):
    shared = [torch.ones(1)]
    assert [leaf.name for leaf in saved(tmp_path, {"a": shared, "b": shared})] == ["a.0", "b.0"]


def test_archives_without_checksums(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        (leaf,) = saved(tmp_path, torch.arange(5.))
    finally:
        torch.serialization.set_crc32_options(True)
    assert leaf.equals(torch.arange(5.))


def repack(source, target, method=zipfile.ZIP_STORED, change=lambda name, data: data, comment=b""):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
        new.comment = comment
    return target


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.uint8])
def test_archives_of_other_zip_programs(tmp_path, method, dtype):
    value = [sample(dtype, (50, 3)), sample(dtype, (50, 3)).T, sample(dtype, (0,))]
    torch.save(value, tmp_path / "a.pt")
    path = repack(tmp_path / "a.pt", tmp_path / "x.pt", method, comment=b"PK\5\6 in a comment")
    _, leaves = read(path)
    assert all(leaf.equals(v) for leaf, v in zip(leaves, value))


def test_deflate_bombs_are_refused(tmp_path):
    torch.save(torch.zeros(40_000_000), tmp_path / "a.pt")
    path = repack(tmp_path / "a.pt", tmp_path / "x.pt", zipfile.ZIP_DEFLATED)
    message = refused(path, "E_LIMIT")
    assert "bytes of memory; the file is damaged or hostile" in message


def test_deflated_records_that_lie(tmp_path):
    torch.save(torch.zeros(100), tmp_path / "a.pt")
    path = repack(tmp_path / "a.pt", tmp_path / "x.pt", zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    record = data.find(b"a/data/0", data.find(b"PK\1\2")) - 46
    for size, status, message in ((50_000_000, "E_LIMIT", "a/data/0 cannot hold the 50000000 bytes it promises"),
                                  (401, "E_FORMAT", "a compressed record cannot be unpacked")):
        struct.pack_into("<I", data, record + 24, size)
        path.write_bytes(data)
        assert message in refused(path, status)


def test_other_compression_is_refused(tmp_path):
    torch.save(torch.zeros(100), tmp_path / "a.pt")
    path = repack(tmp_path / "a.pt", tmp_path / "x.pt", zipfile.ZIP_BZIP2)
    assert refused(path, "E_UNSUPPORTED").endswith("is compressed by method 12; pack the archive with: zip -0")


class Call:
    def __init__(self, function, *args):
        self.parts = function, args

    def __reduce__(self):
        return self.parts


ONLY = ("only tensors, lists, tuples, dicts, numbers and strings are read; load it with torch and save the tensors "
        "alone")


@pytest.mark.parametrize("value,name", [
    (Call(os.system, "echo hacked"), "posix.system"), (Call(eval, "1"), "__builtin__.eval"),
    (np.float32(1), "numpy._core.multiarray.scalar"), (np.ones(2), "numpy._core.multiarray._reconstruct"),
    ({1, 2}, "__builtin__.set"), (collections.Counter("a"), "collections.Counter"), (b"bytes", "_codecs.encode"),
    (torch.ones(2).to_sparse(), "torch._utils._rebuild_sparse_tensor"),
    (torch.quantize_per_tensor(torch.ones(2), 1, 0, torch.qint8), "torch._utils._rebuild_qtensor"),
    (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"), (torch.nn.functional.relu, "torch.nn.functional.relu"),
])
def test_refuses_every_other_global_by_name(tmp_path, value, name):
    torch.save({"x": value}, tmp_path / "x.pt")
    assert refused(tmp_path / "x.pt", "E_UNSUPPORTED") == f"{tmp_path / 'x.pt'}: refuses {name}: {ONLY}"


def test_refuses_what_it_would_misread(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.ones(2, dtype=torch.complex64).conj(), path)
    assert refused(path, "E_UNSUPPORTED") == (
        f"{path}: a tensor was saved with a conjugate or negative flag; save tensor.resolve_conj().resolve_neg() instead")
    torch.save(torch.ones(2).untyped_storage(), path)
    assert refused(path, "E_UNSUPPORTED") == f"{path}: the file holds a type or a bare storage, not a value; save tensors"
    torch.save({"x": torch.Tensor}, path)
    assert "x holds a type or a bare storage" in refused(path, "E_UNSUPPORTED")
    torch.save({(1, 2): 3}, path)
    assert "a dict has a key that is neither a string nor a number" in refused(path, "E_UNSUPPORTED")
    torch.jit.script(torch.nn.Linear(1, 1)).save(path)
    assert "refuses __torch__" in refused(path, "E_UNSUPPORTED")
    np.savez(tmp_path / "x.npz", a=np.ones(2))
    assert "a numpy npz archive; unpack it" in refused(tmp_path / "x.npz", "E_UNSUPPORTED")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "a zip archive, but not of torch: data.pkl is missing" in refused(path, "E_FORMAT")
    torch.save(torch.ones(2), tmp_path / "a.pt")
    repack(tmp_path / "a.pt", path, change=lambda name, data: b"big" if name.endswith("byteorder") else data)
    assert refused(path, "E_UNSUPPORTED") == (
        f"{path}: was saved on a big-endian machine; load it with torch and save it again")


def with_pickle(tmp_path, data):
    torch.save(torch.arange(4.), tmp_path / "x.pt")
    return repack(tmp_path / "x.pt", tmp_path / "y.pt",
                  change=lambda name, old: data if name.endswith("data.pkl") else old)


def tensor_pickle(offset=0, size=(4,), stride=(1,), numel=4, key="0", function="_rebuild_tensor_v2"):
    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return ("storage", torch.FloatStorage, key, "cpu", numel) if value is marker else None
    marker = object()
    out = io.BytesIO()
    args = (marker, offset, size, stride, False, collections.OrderedDict())
    Pickler(out, 2).dump(Call(getattr(torch._utils, function), *args))
    return out.getvalue()


@pytest.mark.parametrize("options,status,message", [
    (dict(offset=1), "E_FORMAT", "the tensor in it is damaged: it reaches beyond its storage; write the file again"),
    (dict(size=(5,)), "E_FORMAT", "the tensor in it is damaged: it reaches beyond its storage; write the file again"),
    (dict(stride=(2,)), "E_FORMAT", "the tensor in it is damaged: it reaches beyond its storage; write the file again"),
    (dict(offset=-1), "E_FORMAT", "the tensor in it is damaged: its size does not fit 64 bits; write the file again"),
    (dict(offset=2**62), "E_FORMAT", "the tensor in it is damaged: its size does not fit 64 bits; write the file again"),
    (dict(stride=(2**62,)), "E_FORMAT", "the tensor in it is damaged: its size does not fit 64 bits; write the file again"),
    (dict(size=(2**62, 4), stride=(0, 0)), "E_FORMAT",
     "the tensor in it is damaged: its size is larger than any memory; write the file again"),
    (dict(stride=(-1,)), "E_FORMAT", "the tensor in it is damaged: a size or stride is negative; write the file again"),
    (dict(size=(-4,)), "E_FORMAT", "the tensor in it is damaged: a size or stride is negative; write the file again"),
    (dict(size=(2, 2)), "E_FORMAT",
     "the tensor in it is damaged: its size and stride do not fit together; write the file again"),
    (dict(size=(1,) * 65, stride=(1,) * 65), "E_FORMAT",
     "the tensor in it is damaged: its size and stride do not fit together; write the file again"),
    (dict(numel=5), "E_TRUNCATED", "truncated: storage 0 promises 20 bytes, the archive has 16; write the file again"),
    (dict(numel=-1), "E_TRUNCATED", "truncated: storage 0 promises -4 bytes, the archive has 16; write the file again"),
    (dict(key="7"), "E_FORMAT", "the tensor in it is damaged: its storage is not in the archive; write the file again"),
    (dict(size=4), "E_FORMAT",
     "the pickle is damaged: a tensor's size or stride is not a tuple of integers; write the file again"),
    (dict(function="_rebuild_tensor"), "E_FORMAT",
     "the pickle calls torch._utils._rebuild_tensor with 6 arguments; it is damaged or written by a torch that is too "
     "new"),
])
def test_tensors_that_lie(tmp_path, options, status, message):
    path = with_pickle(tmp_path, tensor_pickle(**options))
    assert refused(path, status) == f"{path}: {message}"


def test_tensors_that_do_not_lie(tmp_path):
    _, (leaf,) = read(with_pickle(tmp_path, tensor_pickle(offset=1, size=(3,))))
    assert leaf.equals(torch.arange(1., 4.))
    _, (leaf,) = read(with_pickle(tmp_path, tensor_pickle(size=(3, 4), stride=(0, 1))))
    assert leaf.equals(torch.arange(4.).expand(3, 4))


def nested(depth):
    return b"\x80\x02" + b"]" * depth + b"K\x01" + b"a" * depth + b"."


def laughs(levels):
    """Each level holds the one below twice: 2**levels leaves."""
    out = b"\x80\x02]q\x00K\x01a0"
    for i in range(levels):
        out += b"]q" + bytes([i + 1]) + b"(h" + bytes([i]) + b"h" + bytes([i]) + b"e0"
    return out + b"h" + bytes([levels]) + b"."


@pytest.mark.parametrize("data,status,message", [
    (nested(101), "E_LIMIT", "is nested more than 100 deep; the file is damaged or hostile"),
    (b"\x80\x02]q\x00h\x00a.", "E_LIMIT", "is nested more than 100 deep; the file is damaged or hostile"),
    (laughs(40), "E_LIMIT", "repeats its values more than"),
    (b"\x80\x02K\x01r\xff\xff\xff\xff.", "E_FORMAT", "the pickle is damaged: a memo number is too large"),
    (b"\x80\x02X\xff\xff\xff\xffabc.", "E_TRUNCATED", "truncated: the pickle ends inside a value"),
    (b"\x80\x02\x8d" + b"\xff" * 8 + b"abc.", "E_TRUNCATED", "truncated: the pickle ends inside a value"),
    (b"\x80\x02K\x01", "E_TRUNCATED", "truncated: the pickle ends inside a value"),
    (b"\x80\x02.", "E_FORMAT", "the pickle is damaged: it takes a value that is not there"),
    (b"\x80\x02(.", "E_FORMAT", "the pickle is damaged: it takes a value that is not there"),
    (b"\x80\x02h\x05.", "E_FORMAT", "the pickle is damaged: it fetches a value that was never kept"),
    (b"\x80\x02K\x01K\x02a.", "E_FORMAT", "the pickle is damaged: it adds to something that is not a list or dict"),
    (b"\x80\x02}(K\x01u.", "E_FORMAT", "the pickle is damaged: a dict has a key without a value"),
    (b"\x80\x02K\x01)R.", "E_FORMAT", "the pickle is damaged: it calls something that is not a function"),
    (b"\x80\x02K\x01Q.", "E_FORMAT", "the pickle is damaged: a storage is not described as torch does"),
    (b"\x80\x02K\x01}b.", "E_FORMAT", "the pickle is damaged: it sets attributes of something that is not a dict"),
    (b"\x80\x02cos", "E_FORMAT", "the pickle is damaged: a name does not end"),
    (b"\x80\x09.", "E_FORMAT", "the pickle is damaged: its protocol is newer than 5"),
    (b"\x80\x02I42\n.", "E_UNSUPPORTED", "refuses pickle opcode 0x49: only tensors"),
    (b"\x80\x02]e.", "E_FORMAT", "the pickle is damaged: it takes a mark that is not there"),
])
def test_hostile_pickles(tmp_path, data, status, message):
    path = with_pickle(tmp_path, data)
    assert refused(path, status).startswith(f"{path}: {message}")


def test_depth_that_is_allowed(tmp_path):
    _, (leaf,) = read(with_pickle(tmp_path, nested(100)))
    assert leaf.integer == 1


def test_every_truncation_is_refused(tmp_path):
    torch.save([torch.ones(3), 1], tmp_path / "x.pt")
    whole = (tmp_path / "x.pt").read_bytes()
    for cut in range(len(whole)):
        (tmp_path / "y.pt").write_bytes(whole[:cut])
        with pytest.raises(TapError) as info:
            read(tmp_path / "y.pt")
        assert info.value.args[0] in ("E_TRUNCATED", "E_FORMAT")
    assert "the directory at the end of the zip archive is missing; the writer was killed" in info.value.args[1]


def test_hostile_directories(tmp_path):
    torch.save(torch.ones(3), tmp_path / "x.pt")
    whole = bytearray((tmp_path / "x.pt").read_bytes())
    end64 = whole.rfind(b"PK\x06\x06")
    central = whole.find(b"PK\x01\x02")
    for where, size, value, message in [
            (end64 + 32, "<Q", 2**60, "the directory is too small for its records"),
            (end64 + 40, "<Q", 2**63, "the directory lies outside the file"),
            (end64 + 48, "<Q", 2**64 - 1, "the directory lies outside the file"),
            (whole.rfind(b"PK\x06\x07") + 8, "<Q", 2**64 - 9, "the zip64 end record is not where it should be"),
            (central + 42, "<I", 77, "a record is not where the directory says"),
            (central + 28, "<H", 65535, "a record of the directory ends too early"),
            (central, "<I", 0, "the directory ends too early")]:
        data = whole.copy()
        struct.pack_into(size, data, where, value)
        (tmp_path / "y.pt").write_bytes(data)
        assert refused(tmp_path / "y.pt", "E_FORMAT") == (
            f"{tmp_path / 'y.pt'}: the zip archive is damaged: {message}; write the file again")
