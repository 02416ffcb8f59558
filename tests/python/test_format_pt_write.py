"""torch archives that tap_file_write makes, against torch.load, torch.save and zipfile."""

import zipfile

import numpy as np
import pytest
import torch
from test_format_native import TORCH_DTYPES, bits, sample, write

SHAPES = [(), (1,), (0,), (3, 0), (0, 3), (7,), (2, 3), (2, 3, 4, 5), (1,) * 20, (300,), (70000,)]


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)


def stripped(path):
    """The archive without its serialization id, on which writers may differ."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        where = archive.getinfo(f"{path.stem}/.data/serialization_id")
    data = bytearray(path.read_bytes())
    for at in range(len(data) - 40):
        if data[at:at + 40].isdigit():
            data[at:at + 40] = b"0" * 40
    for value in (where.CRC.to_bytes(4, "little"),):
        data = data.replace(value, b"\0\0\0\0")
    return bytes(data)


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_torch_loads_it_and_bytes_equal_torch_save(tmp_path, dtype, shape):
    value = sample(dtype, shape)
    mine, theirs = tmp_path / "a/x.pt", tmp_path / "b/x.pt"
    theirs.parent.mkdir()
    write(mine, "pt", [value])
    assert same(torch.load(mine, weights_only=True), value)
    torch.save(value, theirs)
    assert stripped(mine) == stripped(theirs)


@pytest.mark.parametrize("count", [0, 2, 3, 70, 999, 1000, 1001, 2001])
def test_lists(tmp_path, count):
    values = [sample(TORCH_DTYPES[i % len(TORCH_DTYPES)], (i % 5, 3), seed=i) for i in range(count)]
    mine, theirs = tmp_path / "a/x.bin", tmp_path / "b/x.bin"
    theirs.parent.mkdir()
    write(mine, "pt", values)
    loaded = torch.load(mine, weights_only=True)
    assert isinstance(loaded, list) and len(loaded) == count
    assert all(same(a, b) for a, b in zip(loaded, values))
    torch.save(values, theirs)
    assert stripped(mine) == stripped(theirs)


@pytest.mark.parametrize("how", [lambda t: t.T, lambda t: t[::2, 1::3], lambda t: t[5], lambda t: t[:, 7],
                                 lambda t: t[:1].expand(1500, 900), lambda t: t[3:4, 3:4]])
def test_views_save_their_own_elements(tmp_path, how):
    value = how(torch.randn(1500, 900))
    write(tmp_path / "x.pt", "pt", [value])
    loaded = torch.load(tmp_path / "x.pt", weights_only=True)
    assert same(loaded, value) and loaded.is_contiguous()
    assert loaded.untyped_storage().nbytes() == value.numel() * 4


def test_negative_strides(tmp_path):
    array = np.arange(12, dtype=np.int32).reshape(3, 4)[::-1, ::-2]
    write(tmp_path / "x.pt", "pt", [array])
    assert (torch.load(tmp_path / "x.pt", weights_only=True).numpy() == array).all()


def test_data_is_aligned_and_can_be_mapped(tmp_path):
    values = [sample(torch.uint8, (n,)) for n in (1, 100, 200_000, 3)]
    write(tmp_path / "x.pt", "pt", values)
    loaded = torch.load(tmp_path / "x.pt", weights_only=True, mmap=True)
    assert all(same(a, b) for a, b in zip(loaded, values))
    data = (tmp_path / "x.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        for info in archive.infolist():
            start = info.header_offset + 30 + len(info.filename) + int.from_bytes(
                data[info.header_offset + 28:info.header_offset + 30], "little")
            assert start % 64 == 0 and data[start:start + info.file_size] == archive.read(info)


@pytest.mark.parametrize("name,prefix", [("x.pt", "x"), ("a.b.pt", "a.b"), ("plain", "plain"), ("层.pt", "archive")])
def test_archive_name(tmp_path, name, prefix):
    for folder in ("mine", "theirs"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "mine" / name, "pt", [torch.ones(2)])
    torch.save(torch.ones(2), tmp_path / "theirs" / name)
    for folder in ("mine", "theirs"):
        with zipfile.ZipFile(tmp_path / folder / name) as archive:
            assert archive.namelist()[0] == f"{prefix}/data.pkl"
