"""MindSpore print files, made by the protobuf package from print.proto."""

import numpy as np
import pytest
import torch
from test_format_native import STR, TENSOR, bits, read, refused

descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
from google.protobuf import descriptor_pool, message_factory  # noqa: E402


def make_classes():
    field = descriptor_pb2.FieldDescriptorProto
    proto = descriptor_pb2.FileDescriptorProto(name="print.proto", package="mindspore.prntpb", syntax="proto2")
    tensor = proto.message_type.add(name="TensorProto")
    tensor.field.add(name="dims", number=1, type=field.TYPE_INT64, label=field.LABEL_REPEATED)
    tensor.field.add(name="tensor_type", number=2, type=field.TYPE_STRING, label=field.LABEL_REQUIRED)
    tensor.field.add(name="tensor_content", number=3, type=field.TYPE_BYTES, label=field.LABEL_REQUIRED)
    message = proto.message_type.add(name="Print")
    value = message.nested_type.add(name="Value")
    value.oneof_decl.add(name="value")
    value.field.add(name="desc", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL, oneof_index=0)
    value.field.add(name="tensor", number=2, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, oneof_index=0,
                    type_name=".mindspore.prntpb.TensorProto")
    message.field.add(name="value", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED,
                      type_name=".mindspore.prntpb.Print.Value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("mindspore.prntpb.Print"))


Print = make_classes()
NAMES = {"bool": "Bool", "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64", "uint8": "UInt8",
         "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "float16": "Float16", "float32": "Float32",
         "float64": "Float64", "complex64": "Complex64", "complex128": "Complex128"}


def message(*values):
    """One Print of strings, numpy arrays and (dims, type, bytes)."""
    out = Print()
    for value in values:
        item = out.value.add()
        if isinstance(value, str):
            item.desc = value
            continue
        dims, kind, data = value if isinstance(value, tuple) else (value.shape, NAMES[str(value.dtype)], value.tobytes())
        item.tensor.dims.extend(dims)
        item.tensor.tensor_type = kind
        item.tensor.tensor_content = data
    return out.SerializeToString()


def leaves_of(tmp_path, data):
    (tmp_path / "print").write_bytes(data)
    kind, leaves = read(tmp_path / "print")
    assert kind == "print"
    return leaves


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 0), (4, 5, 6)], ids=str)
def test_every_type(tmp_path, dtype, shape):
    rng = np.random.default_rng(2)
    array = rng.integers(0, 2, shape).astype(dtype)
    text, leaf = leaves_of(tmp_path, message("_TS_SAVE_NAME:a 层", array))
    assert text.type == STR and text.text == "_TS_SAVE_NAME:a 层" and text.name == ""
    assert leaf.type == TENSOR and leaf.name == "_TS_SAVE_NAME:a 层" and leaf.equals(array)


def test_bfloat16(tmp_path):
    value = torch.arange(5).to(torch.bfloat16)
    (leaf,) = leaves_of(tmp_path, message(((5,), "BFloat16", bits(value))))
    assert leaf.equals(value) and leaf.name == ""


def test_order_names_and_appended_messages(tmp_path):
    a, b = np.arange(4, dtype="f4") + 2, np.arange(4, dtype="f4") + 4
    leaves = leaves_of(tmp_path, message("add", a) + message("add", b, b) + message("mul", "two", a))
    assert [(leaf.type, leaf.name) for leaf in leaves] == [
        (STR, ""), (TENSOR, "add"), (STR, ""), (TENSOR, "add"), (TENSOR, ""), (STR, ""), (STR, ""), (TENSOR, "two")]
    assert leaves[1].equals(a) and leaves[3].equals(b) and leaves[4].equals(b)


def test_scalar_spellings_packed_dimensions_and_unknown_fields(tmp_path):
    one = np.float32(7).tobytes()
    (leaf,) = leaves_of(tmp_path, message(((0,), "Float32", one)))
    assert leaf.shape == [] and leaf.data == one
    (leaf,) = leaves_of(tmp_path, message(((0,), "Float32", b"")))
    assert leaf.shape == [0]
    packed = b"\x0a\x02\x02\x01" + b"\x12\x05Int16" + b"\x1a\x04\1\0\2\0" + b"\x20\x07" + b"\x29" + b"\0" * 8
    value = b"\x12" + bytes([len(packed)]) + packed
    (leaf,) = leaves_of(tmp_path, b"\x0a" + bytes([len(value)]) + value + b"\x15\0\0\0\0")
    assert leaf.shape == [2, 1] and leaf.data == b"\1\0\2\0"


def ge(shape, dtype, value):
    return f"Tensor(shape={shape}, dtype={dtype}, value=\n{value})"


def test_the_ge_form(tmp_path):
    data = message("_TS_SAVE_NAME:add\n" + ge("[4]", "Float32", "[2 3 4 5]")) + message(
        "_TS_SAVE_NAME:mul\n" + ge("[2 2]", "Int32", "[[1 -2]\n [3 4]]"))
    a, x, b, y = leaves_of(tmp_path, data)
    assert (a.type, a.text, b.text) == (STR, "_TS_SAVE_NAME:add", "_TS_SAVE_NAME:mul")
    assert x.name == "_TS_SAVE_NAME:add" and x.equals(np.array([2, 3, 4, 5], dtype="f4"))
    assert y.name == "_TS_SAVE_NAME:mul" and y.equals(np.array([[1, -2], [3, 4]], dtype="i4"))


@pytest.mark.parametrize("shape,dtype,value,array", [
    ("[]", "Float32", "1.5", np.array(1.5, "f4")), ("[3]", "Float64", "[1e-3 nan -inf]", np.array([1e-3, np.nan, -np.inf])),
    ("[2]", "Float16", "[0.1 65504]", np.array([0.1, 65504], "f2")), ("[2, 1]", "Bool", "[[True], [False]]",
                                                                    np.array([[True], [False]])),
    ("[2]", "Bool", "[1 0]", np.array([True, False])), ("[1]", "UInt64", "[18446744073709551615]",
                                                       np.array([2**64 - 1], "u8")),
    ("[2]", "Int64", "[-9223372036854775808 9223372036854775807]", np.array([-2**63, 2**63 - 1], "i8")),
    ("[2]", "Int8", "[-128 127]", np.array([-128, 127], "i1")), ("[0]", "Float32", "[]", np.zeros(0, "f4")),
])
def test_ge_values(tmp_path, shape, dtype, value, array):
    (leaf,) = leaves_of(tmp_path, message(ge(shape, dtype, value)))
    assert leaf.type == TENSOR and leaf.equals(array)


def test_ge_bfloat16_and_text_around(tmp_path):
    text = "before " + ge("[2]", "BFloat16", "[1.01 -3]") + " middle " + ge("[1]", "Int32", "[7]") + " after"
    leaves = leaves_of(tmp_path, message("first", text))
    assert [(leaf.type, leaf.text or leaf.name) for leaf in leaves] == [
        (STR, "first"), (STR, "before"), (TENSOR, "before"), (STR, " middle"), (TENSOR, " middle"), (STR, " after")]
    assert leaves[2].equals(torch.tensor([1.01, -3]).to(torch.bfloat16))


@pytest.mark.parametrize("text", [
    ge("[4]", "Float32", "[1 2 ... 4]"), ge("[4]", "Float32", "[1 2 3]"), ge("[2]", "Float32", "[1 2 3]"),
    ge("[1]", "String", "[a]"), ge("[x]", "Float32", "[1]"), ge("[1]", "Int8", "[128]"), ge("[1]", "UInt8", "[-1]"),
    ge("[9223372036854775807]", "Float32", "[1]"), ge("[1]", "Int32", "[1.5]"), "Tensor(shape=[1], dtype=Float32",
    ge("[1]", "Float32", "[" + "1" * 100 + "]"), ge("[-1]", "Float32", "[1]"), "", "Tensor(", ge("[1]", "Bool", "[2]"),
])
def test_what_is_no_tensor_stays_text(tmp_path, text):
    (leaf,) = leaves_of(tmp_path, message(text))
    assert leaf.type == STR and leaf.text == text


def test_the_locale_does_not_matter(tmp_path):
    import locale
    try:
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    except locale.Error:
        pytest.skip("no locale with a decimal comma is installed")
    try:
        (leaf,) = leaves_of(tmp_path, message(ge("[1]", "Float32", "[1.5]")))
    finally:
        locale.setlocale(locale.LC_ALL, "C")
    assert leaf.equals(np.array([1.5], "f4"))


def test_cut_off_files_keep_what_is_whole(tmp_path):
    first, second = message("a", np.ones(3, "f4")), message("b", np.ones(3, "f4"))
    for cut in range(1, len(first)):
        (tmp_path / "print").write_bytes(first[:cut])
        if cut < 5:  # inside the first value
            assert "truncated: the value at byte 0 goes beyond the end of the file; the writer was killed" in refused(
                tmp_path / "print", "E_TRUNCATED")
        else:
            assert [leaf.text for leaf in read(tmp_path / "print")[1]] == ["a"]
    for cut in range(len(first) + 5, len(first + second)):
        leaves = leaves_of(tmp_path, (first + second)[:cut])
        assert [leaf.type for leaf in leaves] == [STR, TENSOR, STR]


@pytest.mark.parametrize("values,status,message_text", [
    ([((3,), "Float32", b"\0" * 8)], "E_TRUNCATED", "truncated: header promises 12 bytes, file has 8"),
    ([((1,), "Float32", b"\0" * 8)], "E_FORMAT",
     "the print file is damaged at byte 17: a tensor's dimensions and data disagree; print again into a new file"),
    ([((-1,), "Float32", b"\0" * 8)], "E_LIMIT", "a shape is negative or larger than any memory; the file is damaged"),
    ([((2**62, 2**62), "Float32", b"")], "E_LIMIT", "a shape is negative or larger than any memory"),
    ([((1,) * 65, "Float32", b"\0" * 4)], "E_FORMAT",
     "the print file is damaged at byte 6: a tensor has bad or too many dimensions; print again into a new file"),
    ([((1,), "Decimal", b"\0" * 4)], "E_UNSUPPORTED",
     'a tensor has type "Decimal", which is not supported; print it as Float32'),
])
def test_hostile_tensors(tmp_path, values, status, message_text):
    path = tmp_path / "print"
    path.write_bytes(message(*values))
    assert refused(path, status).startswith(f"{path}: {message_text}")


def test_damaged_values(tmp_path):
    path = tmp_path / "print"
    path.write_bytes(b"\x0a\x02\x12\x09")
    assert "the print file is damaged at byte 2: a value ends too early" in refused(path, "E_FORMAT")
    path.write_bytes(b"\x0a\x04\x12\x02\x12\x09")
    assert "the print file is damaged at byte 4: a tensor ends too early" in refused(path, "E_FORMAT")
