"""Writes the corpus that fuzzing starts from: small files of numpy, torch, safetensors and protobuf. Run: python fuzz/make_corpus.py"""

import io
import pathlib
import sys
import zipfile

import numpy as np
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/python"))
from test_format_native import TORCH_DTYPES, sample  # noqa: E402
from test_format_print import ge, message  # noqa: E402


def put(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    assert len(data) < 4096, (target, name, len(data))
    (folder / name).write_bytes(data)


def npy():
    arrays = {"f4": np.arange(6, dtype="<f4").reshape(2, 3), "scalar": np.array(1.5), "empty": np.zeros((3, 0)),
              "big_endian": np.arange(4, dtype=">c16"), "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
              "bool": np.array([True]), "structured": np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]),
              "text": np.array(["a"]), "many_dims": np.zeros((1,) * 40, dtype="u1")}
    for name, array in arrays.items():
        for version in ((1, 0), (2, 0), (3, 0)) if name == "f4" else ((1, 0),):
            out = io.BytesIO()
            np.lib.format.write_array(out, array, version=version)
            put("fuzz_npy", f"{name}_{version[0]}", out.getvalue())


def pt():
    marked = torch.ones(1)
    marked.note = "x"
    values = {"tensor": torch.arange(3.), "f8": sample(torch.float8_e5m2, (2,)), "view": torch.arange(12.).view(3, 4).T[1:],
              "list": [torch.ones(2), 1, "text", None, True, 2.5, 2 - 1j], "dict": {"a": (torch.ones(1), []), 3: {}},
              "parameter": torch.nn.Parameter(torch.ones(2)), "state": torch.nn.Linear(1, 1).state_dict(),
              "meta": torch.empty(2, device="meta"), "marked": marked, "big_int": [2**80, -2**70, 2**40],
              "refused": np.float32(1), "types": [torch.float32, torch.device("cpu"), torch.Size([1, 2])]}
    for name, value in values.items():
        for protocol in (2, 4) if name in ("dict", "tensor") else (2,):
            out = io.BytesIO()
            torch.save(value, out, pickle_protocol=protocol)
            put("fuzz_pt", f"{name}_{protocol}", out.getvalue())
            with zipfile.ZipFile(out) as archive:
                put("fuzz_pickle", f"{name}_{protocol}", archive.read("archive/data.pkl"))
                for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED) if name == "tensor" and protocol == 2 else ():
                    again = io.BytesIO()
                    with zipfile.ZipFile(again, "w", method) as packed:
                        for record in ("archive/data.pkl", "archive/data/0", "archive/byteorder"):
                            packed.writestr(record, archive.read(record))
                    put("fuzz_pt", f"repacked_{method}", again.getvalue())
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("x", "y")
    put("fuzz_pt", "other_zip", other.getvalue())


def safe():
    held = [d for d in TORCH_DTYPES if d not in (torch.complex32, torch.complex128)]
    put("fuzz_safetensors", "all", safetensors.torch.save({str(d): sample(d, (1, 2)) for d in held}, {"format": "pt"}))
    put("fuzz_safetensors", "one", safetensors.torch.save({"x": torch.ones(3)}))
    put("fuzz_safetensors", "none", safetensors.torch.save({}))
    put("fuzz_safetensors", "scalar", safetensors.torch.save({"层\n": torch.tensor(1), "e": torch.ones(0, 3)}))


def printed():
    one = np.arange(4, dtype="f4")
    put("fuzz_printfile", "vm", message("_TS_SAVE_NAME:add", one) + message("mul", one, one))
    put("fuzz_printfile", "ge", message("_TS_SAVE_NAME:add\n" + ge("[4]", "Float32", "[2 3 4 5]")))
    put("fuzz_printfile", "ge_types", message(ge("[2 1]", "Bool", "[[True] [False]]") + ge("[]", "Int64", "-7"),
                                              ge("[2]", "BFloat16", "[nan 1e-3]"), ge("[1]", "UInt8", "[255]")))
    put("fuzz_printfile", "scalars", message(np.float64(1).reshape(()), ((0,), "Int32", b"\1\0\0\0"), ((), "Bool", b"\1")))
    put("fuzz_printfile", "cut", message("a", one)[:-3])


if __name__ == "__main__":
    npy()
    pt()
    safe()
    printed()
