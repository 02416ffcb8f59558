"""The public headers: which structs may grow, and how; enums; every function with a pointer is tried with NULL."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = sorted((ROOT / "include/tensortap").glob("*.h"))
TEXT = "\n".join(re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.DOTALL) for path in HEADERS)
COMMENTED = "\n".join(path.read_text() for path in HEADERS)

# Structs that stay as they are for ever, and why.
FIXED = {
    "tap_error": "filled by every function, declared without a word everywhere",
    "tap_allocator": "one function and its user",
    "tap_dtype_info": "the library's own, read through a pointer: it may grow at its end",
    "tap_tensor": "a plain value; arrays of it are passed",
    "tap_stats": "a plain value, inside of others",
    "tap_saved": "a plain value: a number of a save",
    "tap_value": "a plain value; arrays of it are passed",
    "tap_place": "a plain value, inside of another",
    "tap_spec": "a plain value; arrays of it are passed",
    "tap_match_side": "a plain value, inside of another",
    "tap_arg": "a plain value; arrays of it are passed",
}
# Made by the library, which sets the size; nobody else has one to initialise.
GIVEN = {"tap_problem", "tap_op_args", "tap_library"}


def structs() -> dict[str, str]:
    found = re.findall(r"typedef struct (\w+) \{(.*?)\n\} (\w+);", TEXT, re.DOTALL)
    assert all(tag == name for tag, _, name in found)
    return {name: body for _, body, name in found}


def test_structs_that_may_grow_start_with_their_size():
    found = structs()
    assert len(found) > 20 and set(FIXED) <= set(found)
    for name, body in found.items():
        sized = body.split(";")[0].split() == ["size_t", "size"]
        assert sized != (name in FIXED), f"{name}: it starts with its size, or FIXED says why it never grows"
        init = re.findall(rf"^TAP_INIT(?:_USUAL)?\({name}\)", TEXT, re.MULTILINE)
        assert len(init) == (1 if sized and name not in GIVEN else 0), f"{name}: one _init"


def test_sizes_are_looked_at():
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.c"))
    for name in structs():
        if name not in FIXED and name not in GIVEN:
            assert re.search(rf"TAP_NEED_SIZED?\([\w&>, -]+, {name},|TAP_SIZE_IS_KNOWN\({name},", sources), name


def test_enums_have_names():
    assert not re.search(r"(?<!typedef )enum \{", TEXT)
    assert not re.search(r"\bint \w+;", re.sub(r"\bint (line|sys_errno|stall_ms|rank|world_size|device_index|attempt|"
                                               r"precision|threshold|edge_items|line_width|threads);", "", TEXT)), (
        "an int in a public struct is a number; a choice has its enum")  # fmt: skip
    for name in re.findall(r"unsigned (keep|flags);", TEXT):
        assert re.search(rf"unsigned {name};\s+/\* tap_\w+_bits", COMMENTED)
    members = re.findall(r"unsigned \w+; +/\* (tap_\w+_bits)", COMMENTED)
    assert len(members) >= 4 and all(re.search(rf"typedef enum {member} \{{", TEXT) for member in members)


def test_every_pointer_is_tried_as_null():
    """tests/base/test_sized.c has a row for each function that takes a pointer."""
    found = set(re.findall(r"^TAP_API [\w *]+?\b(tap_\w+)\([^;]*?\*[^;]*\);", TEXT, re.MULTILINE))
    found = {name for name in found if not name.endswith("_init_sized")}
    rows = re.findall(r'^CALL\((tap_\w+), "([E-]+)"', (ROOT / "tests/base/test_sized.c").read_text(), re.MULTILINE)
    assert len(found) > 80 and sorted(name for name, _ in rows) == sorted(found)
