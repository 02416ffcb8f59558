"""JSON written in C against Python's own json, on numbers and strings that are easy to get wrong."""
import json
import random
import struct
import subprocess

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
