"""Whatever a value is called, it is read back under that name: names and keys at random in every layout, against a dict
kept aside. Each value is another number, so that none is taken for another."""
import pathlib
import posixpath
import random
from typing import Any

import numpy as np
import pytest

import tensortap as tap

LAYOUTS = ["native", "msprobe", "msprobe_modules", "torchair", "mindspore", "torch_npu", "troubleshooter"]
PATHS = {"torch_npu", "troubleshooter"}  # there a name is a path of a file
PIECES = ["x", "weight", ".", "..", "...", "/", "%", "%2F", "%2", "F", "~", "~1", "_", "_grad", "_backward", "_rank0", "_rank3",
          "_child7", "_device_0", "_device_1_2", ".debug", ".0.debug", ".forward.1", ".backward.0", ".OUTPUT.", ".INPUT.0", "_float32_0",
          "_int64_3", ".pt", ".npy", ".bin", ".tmp", ".tensortap", ".tensortap/rank0", ".tap-00000000-0000000000000000.tmp", "type", "data",
          "dtype", "debug.json", "dump_tensor_data", "step0", "rank0", "0", "1", "-1", "001", " ", "\t", "\n", "\r", "\x01", "\x1b[0m", "\x1f",
          "\x7f", "é", "層", "😀", "e\u0301", "\u200b", "\u202e", "\ufeff", "\udcff", "\\", "'", '"', "{}", "[0]", "*", "?", "|", ":", "$(x)",
          "con", "NUL.", "a" * 90, "層" * 60, "n" * 300]
ALWAYS = [".weight", "", " ", ".tensortap/x", ".tensortap", "..tensortap", ".tap-00000000-0000000000000000.tmp", "x.", "x ", "x_grad",
          "x_grad~1", "x_backward", "x_rank3", "x_child5", "x_rank0", "x_child0", "%00", "%2e", "a%", "type", "a" * 300, "a" * 299 + "b",
          "層" * 100, "\udcff", "x.pt", "x.npy", "x.bin", "x_device_0", "x_device_0_1", "0_x", "12", "x_float32_0"]


def some_name(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(ALWAYS)
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 5)))


def some_keys(rng: random.Random) -> list[Any]:
    keys: dict[Any, None] = {}
    for _ in range(rng.randrange(1, 5)):
        keys[rng.choice([0, 1, 2, True, None, 1.5, (1, 2), "0", "1", "2", "True", "None", "1.5", "", ".", "a.b", "a", "b", "type", "value",
                         "dtype", "~1", "1~1", some_name(rng)])] = None
    return list(keys)


def spelled(keys: list[Any]) -> list[str]:
    """Keys as they are shown: text as it is; of others that read the same the later ones are numbered."""
    taken = {key for key in keys if isinstance(key, str)}
    out = []
    for key in keys:
        text = wanted = key if isinstance(key, str) else str(key)
        number = 0
        while not isinstance(key, str) and text in taken:
            number += 1
            text = f"{wanted}~{number}"
        taken.add(text)
        out.append(text)
    return out


def usable(layout: str, name: str) -> bool:
    """A path that names a file below the directory; torch_npu's has its suffixes only."""
    if layout not in PATHS:
        return True
    if "\0" in name or name.startswith("/") or posixpath.basename(name) in (".", "..") or name.endswith("/"):
        return False
    depth = 0
    for part in name.split("/")[:-1]:
        depth += part not in ("", ".") and (1 if part != ".." else -1)
        if depth < 0:
            return False
    if layout != "torch_npu":
        return True
    stem = posixpath.basename(name).lstrip(".")
    return name != "" and ("." not in stem or name.endswith((".pt", ".bin")))


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8")


def expected(layout: str, name: str, key: str | None) -> tuple[str, str]:
    name, path = (text.encode("utf-8", "backslashreplace").decode() for text in (name, key or ""))  # lone surrogates
    path = path.replace("\x1f", "%1F")  # it stands between the elements of a path
    if layout in PATHS:
        folder = posixpath.normpath("/" + posixpath.dirname(name)).lstrip("/")
        name = posixpath.join(folder, posixpath.basename(name))
    if layout == "torch_npu" and not posixpath.basename(name).lstrip(".").count("."):
        name += ".pt"
    if layout == "troubleshooter" and name.endswith(".npy"):
        name = name[:-4]
    if layout in ("mindspore", "troubleshooter") and key is not None:
        name, path = f"{name}.{path}", ""
    if layout == "mindspore" and name.endswith("_grad"):
        name = name[:-5]  # the layout writes gradients that way
    if layout == "troubleshooter" and name.endswith("_backward"):
        name = name[:-9]
    if layout == "torchair":
        path = "0" if key is None else path
    return name, path


def agrees(layout: str, got: tuple[str, str], want: tuple[str, str]) -> bool:
    """Names that a file system has no room for are cut, and end in a hash of all of it."""
    if got == want:
        return True
    whole = layout in ("native", "msprobe", "msprobe_modules")
    for shown, meant in zip(got, want, strict=True):
        first = bytes_of(shown.split("~")[0])
        cut = "~" in shown and len(bytes_of(meant)) > 60 and bytes_of(meant).startswith(first[:60])
        if shown != meant and (whole or not cut):
            return False
    return True


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_name_is_read_back(tmp_path: pathlib.Path, layout: str, asynchronous: bool, seed: int) -> None:
    rng = random.Random(f"{layout}{asynchronous}{seed}")
    kept: dict[int, tuple[str, str]] = {}

    def fresh(name: str, key: str | None) -> np.ndarray:
        number = len(kept)
        kept[number] = expected(layout, name, key)
        return np.full(2, number, dtype=np.int64)

    names = [*ALWAYS, *(some_name(rng) for _ in range(400))]
    with tap.record(tmp_path, layout=layout, asynchronous=asynchronous, device_index=0) as recorder:
        for name in names:
            if not usable(layout, name):
                continue
            how = rng.randrange(3) if layout != "torch_npu" else rng.randrange(2)
            if how == 0:
                recorder.save(fresh(name, None), name)
            elif how == 1:
                recorder.save([fresh(name, "0"), fresh(name, "1")], name)
            else:
                keys = some_keys(rng)
                recorder.save({key: fresh(name, text) for key, text in zip(keys, spelled(keys), strict=True)}, name)
            if rng.random() < 0.02:
                recorder.step()
    with tap.open(tmp_path) as run:
        assert run.layout == layout
        seen: dict[int, tuple[str, str]] = {}
        for record in run:
            number = int(record.numpy()[0])
            assert number not in seen
            seen[number] = (record.name, record.path)
    wrong = {n: (seen.get(n), kept[n]) for n in kept if n not in seen or not agrees(layout, seen[n], kept[n])}
    assert not wrong and len(seen) == len(kept), list(wrong.items())[:20]
    verified = tap.verify(tmp_path)
    assert verified.ok and not verified.problems
