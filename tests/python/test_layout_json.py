"""JSON written and read in C against Python's own json, on what is easy to get wrong and on what is broken."""
import json
import random
import struct
import subprocess
from typing import Any

import pytest
from layout_programs import program


def run(mode: str, lines: list[str]) -> list[str]:
    done = subprocess.run([program("test_json"), mode], input="\n".join(lines) + "\n", capture_output=True, text=True,
                          check=True, timeout=300)
    return done.stdout.split("\n")[:-1]


def bits_of(numbers: list[float]) -> list[str]:
    return [f"{struct.unpack('<Q', struct.pack('<d', number))[0]:016x}" for number in numbers]


def check_floats(numbers: list[float]) -> None:
    for number, text in zip(numbers, run("floats", bits_of(numbers)), strict=True):
        assert text == json.dumps(number), number.hex()


def test_powers_of_two_and_ten_and_their_neighbours() -> None:
    numbers = []
    for exponent in range(-1074, 1024):
        number = 2.0**exponent
        bits = struct.unpack("<q", struct.pack("<d", number))[0]
        numbers += [struct.unpack("<d", struct.pack("<q", bits + step))[0] for step in (-1, 0, 1)]
    numbers += [float(f"{digit}e{exponent}") for exponent in range(-323, 309) for digit in (1, 3, 5, 9.5)]
    check_floats(numbers)


def test_random_bits() -> None:
    rng = random.Random(1)
    check_floats([struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0] for _ in range(60000)])


def test_float32_values_and_short_decimals() -> None:
    rng = random.Random(2)
    numbers = [struct.unpack("<f", struct.pack("<I", rng.getrandbits(32)))[0] for _ in range(20000)]
    numbers += [round(rng.uniform(-1000, 1000), rng.randrange(0, 8)) for _ in range(20000)]
    check_floats(numbers)


def test_strings() -> None:
    rng = random.Random(3)
    texts = [bytes([byte]) for byte in range(256)] + ["测试é😀\u2028\ufeff".encode()]
    texts += [bytes(rng.getrandbits(8) for _ in range(rng.randrange(40))) for _ in range(3000)]
    texts += ["".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xA0, 0xD800), rng.randrange(0x10000, 0x110000)]))
                      for _ in range(20)).encode() for _ in range(1000)]
    for text, shown in zip(texts, run("strings", [text.hex() for text in texts]), strict=True):
        assert shown == json.dumps(text.decode("utf-8", "surrogateescape")), text


def text_bytes(text: str) -> str:
    """As a C string: a byte that was not UTF-8 is that byte, and a NUL is spelled out."""
    parts = [bytes([ord(c) & 0xFF]) if 0xDC80 <= ord(c) <= 0xDCFF else b"%00" if c == "\0" else c.encode("utf-8", "surrogatepass")
             for c in text]
    return "t" + b"".join(parts).hex()


class Digits(str):
    """An integer as it was written."""


def shown(value: Any) -> Any:
    """What the program prints for a value; dicts come as lists of pairs, so that equal keys are seen."""
    if isinstance(value, tuple):
        return ["d", *(part for key, item in value for part in (text_bytes(key), shown(item)))]
    if isinstance(value, list):
        return ["l", *map(shown, value)]
    if isinstance(value, str):
        return value if isinstance(value, Digits) else text_bytes(value)
    return value


def oracle(text: bytes) -> str | None:
    try:
        value = json.loads(text.decode(), object_pairs_hook=tuple, parse_int=Digits)
        return json.dumps(shown(value))
    except ValueError:
        return None


def check_reading(texts: list[bytes]) -> None:
    for text, answer in zip(texts, run("read", [text.hex() for text in texts]), strict=True):
        expected = oracle(text)
        if expected is None:
            assert answer in ("E_FORMAT", "E_TRUNCATED"), (text, answer)
        else:
            assert answer == expected, text


LEAF = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [10, 2], "Max": 1.5, "Min": float("-inf"),
        "Mean": float("nan"), "Norm": 3.25e-7, "requires_grad": True, "data_name": "x\u00e9\U0001f600\udcff.0.debug.pt"}
DOCUMENT = json.dumps({"task": "tensor", "data": {"x.0.debug": LEAF, "y\n\"\\.0.debug": [{"type": "int", "value": -12}, None, {}, []],
                                                  "z": {"a": {"b": [False, 0, -0.0, 12345678901234567890123]}}}}, indent=1).encode()


def test_reading_what_python_writes() -> None:
    check_reading([DOCUMENT, json.dumps(json.loads(DOCUMENT), ensure_ascii=False).encode("utf-8", "surrogatepass")])


def test_reading_a_text_cut_at_every_byte() -> None:
    texts = [DOCUMENT[:at] for at in range(len(DOCUMENT))]
    check_reading(texts)
    answers = run("read", [text.hex() for text in texts if text])
    assert set(answers) == {"E_TRUNCATED"}


def test_reading_flipped_bytes() -> None:
    rng = random.Random(4)
    texts = []
    for _ in range(20000):
        text = bytearray(DOCUMENT)
        for _ in range(rng.choice([1, 1, 2, 5])):
            text[rng.randrange(len(text))] = rng.choice([rng.getrandbits(8), rng.choice(b'{}[]",:0123456789eE+-.NIntfu\\ \n')])
        texts.append(bytes(text))
    check_reading(texts)


def test_reading_soup() -> None:
    rng = random.Random(5)
    pieces = [b"{", b"}", b"[", b"]", b",", b":", b'"a"', b'"\\u00', b"1", b"-", b"0", b".5", b"e1", b"1e+5", b"NaN", b"Infinity", b"-Inf",
              b"inity", b"null", b"true", b"fal", b"se", b" ", b"\n", b"\t", b"\x00", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b'"', b"'a'",
              b"//", b"/**/", b"\xef\xbb\xbf", b"\\ud83d", b"\\ude00", b"\\udcff", b"01", b"1.", b"0x1", b"1_0", b"+1"]
    check_reading([b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 9))) for _ in range(20000)])
    check_reading([b'"%s"' % b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 6))) for _ in range(5000)])
    check_reading([b"[%s]" % b",".join(rng.choice(pieces) for _ in range(rng.randrange(1, 4))) for _ in range(5000)])


@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_reading_deep_nesting(bracket: str) -> None:
    close = "]" if bracket == "[" else "}"
    for depth, deep in [(899, False), (901, True), (100000, True)]:
        whole = (bracket * depth + "1" + close * depth).encode()
        answer = run("read", [whole.hex()])[0]
        assert (answer == "E_LIMIT") is deep
