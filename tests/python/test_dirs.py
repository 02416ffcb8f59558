"""The shape of the tree: which directory may include which, unique file names, what no file may contain."""

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDER = ["base", "tensor", "format", "record", "compare", "graph", "frontend", "engine", "device", "cli"]
ROOMS = {"record": ["ring", "layouts", "native", "drain", "capture", "read"]}  # the same within a directory
# the rooms of the Python package, and which others each may import; all may import the extension, _core
PYTHON_ROOMS = {
    "_record": set(),
    "_torch": {"_record"},
    "_mindspore": {"_record"},
    "_engine": {"_record"},
    "compat": {"_record", "_torch", "_mindspore", "_engine"},
}
# installed; anybody may include them
PUBLIC = {"tensortap/tensortap.h", "tensortap/tensortap_compare.h", "tensortap/tensortap_engine.h"}
# not installed: between the command and the library it is linked with
PRIVATE = {"private/writer_main.h": {"src/record/drain/spawn.c", "src/cli/main.c"}}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# names that a tool or a language prescribes for many directories
PRESCRIBED = {"CMakeLists.txt", "__init__.py", "__main__.py", "conftest.py", "README.md", "run.sh", "py.typed"}
PRESCRIBED |= {"converter_test.py"}  # torchair's users type it


def tracked() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def sources(*folders: str) -> list[Path]:
    wanted = [ROOT / folder for folder in folders]
    return [
        path
        for path in tracked()
        if path.suffix in {".c", ".h", ".inc", ".def"} and any(folder in path.parents for folder in wanted)
    ]


def may_include(room: str, inner: str, target: str) -> bool:
    """May a file of src/room/inner include target, a path below src?"""
    folder, *rest = target.split("/")
    if folder not in ORDER or ORDER.index(folder) > ORDER.index(room):
        return False
    rooms = ROOMS.get(folder, [])
    if not rooms or folder != room:
        return True
    return inner in rooms and rest[0] in rooms and rooms.index(rest[0]) <= rooms.index(inner)


def bad_includes(path: Path, text: str) -> list[str]:
    """What a file of src includes although its directory may not."""
    room, inner = path.relative_to(ROOT / "src").parts[:2]
    bad = []
    for name in INCLUDE.findall(text):
        if name in PUBLIC or str(path.relative_to(ROOT)) in PRIVATE.get(name, ()):
            continue
        if room == "cli":
            allowed = (path.parent / name).is_file()
        else:
            local = "/" not in name and (path.parent / name).is_file()
            allowed = local or may_include(room, inner, name)
        if not allowed:
            bad.append(name)
    return bad


def test_every_directory_of_src_has_a_place() -> None:
    rooms = {path.relative_to(ROOT / "src").parts[0] for path in sources("src")}
    assert rooms <= set(ORDER)
    for folder, inner in ROOMS.items():
        assert {path.relative_to(ROOT / "src" / folder).parts[0] for path in sources(f"src/{folder}")} == set(inner)


def test_a_directory_includes_only_from_those_before_it() -> None:
    wrong = {}
    for path in sources("src"):
        bad = bad_includes(path, path.read_text())
        if bad:
            wrong[str(path.relative_to(ROOT))] = bad
    assert not wrong


@pytest.mark.parametrize(
    ("path", "line", "ok"),
    [
        ("src/tensor/x.c", '#include "base/io.h"', True),
        ("src/tensor/x.c", '#include "record/entry.h"', False),
        ("src/base/x.c", '#include "tensor/hash.h"', False),
        ("src/record/native/x.c", '#include "record/ring/ring.h"', True),
        ("src/record/native/x.c", '#include "record/native/scan.h"', True),
        ("src/record/native/x.c", '#include "record/read/run.h"', False),
        ("src/record/x.c", '#include "record/ring/ring.h"', False),
        ("src/record/ring/x.c", '#include "tensor/hash.h"', True),
        ("src/graph/x.c", '#include "record/read/run.h"', True),
        ("src/cli/x.c", '#include "base/io.h"', False),
        ("src/cli/x.c", '#include "tensortap/tensortap.h"', True),
        ("src/cli/x.c", '#include "private/writer_main.h"', False),
        ("src/cli/main.c", '#include "private/writer_main.h"', True),
    ],
)
def test_the_rule_itself(path: str, line: str, ok: bool) -> None:
    assert (bad_includes(ROOT / path, line) == []) is ok


def test_python_sees_the_public_headers_only() -> None:
    wrong = {}
    for path in sources("python"):
        text = path.read_text()
        bad = [
            name
            for name in INCLUDE.findall(text)
            if name not in PUBLIC and not (path.parent / name).is_file()
        ]
        if bad:
            wrong[str(path.relative_to(ROOT))] = bad
    assert not wrong


def python_rooms_of(module: str, text: str) -> set[str]:
    """The rooms that a module of the package imports from; "" for the package itself."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            base += node.module.split(".") if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "tensortap" and parts[1:2] != ["_core"]:
                found.add(parts[1] if len(parts) > 1 and parts[1] in PYTHON_ROOMS else "")
    return found


def bad_imports(module: str, text: str) -> set[str]:
    room = module.split(".")[1]
    allowed = PYTHON_ROOMS[room] | {room} if room in PYTHON_ROOMS else PYTHON_ROOMS.keys() | {""}
    return python_rooms_of(module, text) - allowed


def test_python_rooms_import_only_what_they_may() -> None:
    wrong = {}
    for path in tracked():
        if path.suffix == ".py" and ROOT / "python/tensortap" in path.parents:
            module = ".".join(path.relative_to(ROOT / "python").with_suffix("").parts)
            bad = bad_imports(module, path.read_text())
            if bad:
                wrong[module] = sorted(bad)
    assert wrong == {}


def test_every_python_folder_has_a_place() -> None:
    package = ROOT / "python/tensortap"
    folders = {path.relative_to(package).parts[0] for path in tracked() if package in path.parents}
    assert {name for name in folders if (package / name).is_dir()} == PYTHON_ROOMS.keys()


@pytest.mark.parametrize(
    ("module", "line", "bad"),
    [
        ("tensortap._record.values", "from .._torch import torch_taps", {"_torch"}),
        ("tensortap._record.values", "def f():\n    import tensortap.compat.msprobe", {"compat"}),
        ("tensortap._record.values", "from .. import _core\nfrom . import sites", set()),
        ("tensortap._record.values", "from .. import save", {""}),
        ("tensortap.compat.torchair._dump", "from ..._engine.backend import compile_graph", set()),
        ("tensortap._engine.backend", "from .._mindspore import ms_taps", {"_mindspore"}),
        ("tensortap.mindspore", "from ._mindspore.ms_taps import save_grad", set()),
    ],
)
def test_the_rule_of_python_itself(module: str, line: str, bad: set[str]) -> None:
    assert bad_imports(module, line) == bad


def test_the_public_headers_stand_alone() -> None:
    includes = {name: INCLUDE.findall((ROOT / "include" / name).read_text()) for name in PUBLIC}
    assert includes == {name: [] if name == "tensortap/tensortap.h" else ["tensortap.h"] for name in PUBLIC}
    present = {str(path.relative_to(ROOT / "include")) for path in sources("include")}
    assert present == PUBLIC | PRIVATE.keys()


def test_file_names_are_unique() -> None:
    places = defaultdict(list)
    for path in tracked():
        if path.name in PRESCRIBED or path.suffix not in {".c", ".h", ".py", ".sh", ".cmake", ".inc", ".def", ".md"}:
            continue
        places[path.name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


# -------------------------------------------------------------------------------------------------- tests by name

MAP = ROOT / "tests/map.txt"
TEST_FOLDERS = {*ORDER, "fault"}  # of C tests: the rooms of src, and what stands beside them


def names_of_tests(source: str) -> list[str]:
    """Where the test of a source's own name may lie, as paths from the root."""
    path = Path(source)
    folder = Path("tests", *path.parts[1:-1])
    names = [folder / f"test_{path.stem}.c", folder / f"test_{path.stem}.py"]
    if folder.name == "kernels":  # what they compute is compared with torch one folder up
        names.append(folder.parent / f"test_{path.stem}.py")
    if path.parts[1] == "cli":
        command = path.stem.removeprefix("cmd_")
        names += [folder / "golden" / f"{command}.txt", folder / f"test_{command}.py"]
    return [str(name) for name in names]


def read_map(text: str) -> tuple[list[tuple[str, str]], list[str]]:
    """(test, pattern of sources) for every source below a test, and the tests that stand alone."""
    rows, alone, test = [], [], ""
    for line in text.splitlines():
        if line.startswith("  "):
            rows += [(test, pattern) for pattern in line.split()]
        elif " - " in line and not line.startswith("#"):
            test = line.split(" - ")[0]
        elif line and not line.startswith("#"):
            alone.append(line)
    return rows, alone


def wrong_in_map(files: set[str], text: str) -> list[str]:
    """What tests/map.txt and the tree do not agree about."""
    rows, alone = read_map(text)
    wrong = [f"{test}: there is no such test" for test in sorted({test for test, _ in rows} | set(alone)) if test not in files]
    listed = set()
    for test, pattern in rows:
        found = {name for name in files if PurePosixPath(name).match(pattern)}
        wrong += [f"{pattern}: below {test}, and there is no such source"] if not found else []
        wrong += [f"{name}: listed twice" for name in sorted(found & listed)]
        listed |= found
    sources = sorted(name for name in files if name.startswith("src/") and name.endswith(".c"))
    for source in sources:
        own = [name for name in names_of_tests(source) if name in files]
        if own and source in listed:
            wrong.append(f"{source}: listed, and has {own[0]} of its own")
        if not own and source not in listed:
            wrong.append(f"{source}: no test; write {names_of_tests(source)[0]}, or enter it below the one that covers it")
    of_a_source = {name for source in sources for name in names_of_tests(source)}
    for name in sorted(files):
        path = PurePosixPath(name)
        if path.match("tests/**/test_*.c") or (path.match("tests/*/test_*.c")):
            if path.parts[1] not in TEST_FOLDERS or (name not in of_a_source and name not in alone):
                wrong.append(f"{name}: named after no source of its room, and not among the tests of many")
    return wrong


def test_every_source_has_a_test_by_name() -> None:
    files = {str(path.relative_to(ROOT)) for path in tracked()}
    assert wrong_in_map(files, MAP.read_text()) == []


def test_the_map_of_tests_itself() -> None:
    files = {"src/a/x.c", "src/a/y_1.c", "src/a/y_2.c", "src/cli/cmd_ls.c", "tests/a/test_x.c", "tests/base/test_x.c",
             "tests/cli/golden/ls.txt", "tests/base/test_all.c"}
    text = "# a heading\n\ntests/a/test_x.c - both\n  src/a/y_*.c\n\ntests/base/test_all.c\n"
    strays = ["tests/a/test_x.c: named", "tests/base/test_x.c: named"]
    assert [line.split(" after")[0] for line in wrong_in_map(files, text)] == strays  # a is no room, base has no x
    missing = wrong_in_map(files, text.replace("y_*", "y_1"))
    assert any(line.startswith("src/a/y_2.c: no test; write tests/a/test_y_2.c") for line in missing)
    assert "src/a/z.c: below tests/a/test_x.c, and there is no such source" in wrong_in_map(files, text + "tests/a/test_x.c - \n  src/a/z.c\n")
    assert "src/a/x.c: listed, and has tests/a/test_x.c of its own" in wrong_in_map(files, text.replace("y_*.c", "*.c"))
    assert "src/a/y_1.c: listed twice" in wrong_in_map(files, text.replace("y_*.c", "y_*.c src/a/y_1.c"))
    assert "tests/gone.c: there is no such test" in wrong_in_map(files, text + "tests/gone.c\n")


# ---------------------------------------------------------------------------------------- the walk through the tree

DESIGN = ROOT / "docs/design.md"
FILE_NAME = re.compile(r"(?<![\w./*-])[\w*][\w./*-]*\.(?:c|h|def|inc|py)(?![\w/])")


def rooms_of_walk(text: str) -> set[str]:
    """The directories that the section Rooms of docs/design.md names, as paths from the root."""
    block = text.split("## Rooms")[1].split("```")[1]
    rooms, outer = set(), ""
    for line in block.splitlines():
        match = re.match(r"( *)([\w/]+/)\s", line)
        if match and not match[1]:
            outer = match[2]
        if match and len(match[1]) in (0, 2):
            rooms.add((outer + match[2] if match[1] else outer).rstrip("/"))
    return rooms


def test_the_walk_names_files_that_exist() -> None:
    files = [str(path.relative_to(ROOT)) for path in tracked()]
    names = FILE_NAME.findall(DESIGN.read_text())
    assert len(names) > 30
    missing = [name for name in names if not any(PurePosixPath(path).match(name) for path in files)]
    assert missing == []


def test_the_walk_names_every_room() -> None:
    rooms = rooms_of_walk(DESIGN.read_text())
    assert [room for room in sorted(rooms) if not (ROOT / room).is_dir()] == []
    folders = {str(path.parent.relative_to(ROOT)) for path in sources("src", "include")}
    folders = {name for name in folders if not name.endswith("/kernels")}
    assert sorted(folders - rooms) == []


def test_the_walk_goes_both_ways() -> None:
    """Every room of src/record has a file that the text walks through, not only a line in the list of rooms."""
    text = DESIGN.read_text().split("## Rooms")[1].split("```", 2)[2]
    files = [PurePosixPath(path.relative_to(ROOT)) for path in tracked()]
    walked = {path.parts[2] for name in FILE_NAME.findall(text) for path in files
              if path.match(name) and path.parts[:2] == ("src", "record")}
    assert sorted(set(ROOMS["record"]) - walked) == []


def test_c_files_open_with_what_lives_there() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for path in sources("src", "include", "python", "tests", "fuzz", "bench", "examples")
        if not path.read_text().startswith("/*") and "compat" not in path.parts  # printed in other people's documents
    ]
    assert bare == []


def test_files_stay_readable() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in sources("src", "include", "python")
        if (count := len(path.read_text().splitlines())) > 900
    }
    assert long == {}


# spelled in parts, so that this file does not find itself
FORBIDDEN = {
    "a word for other tools' files (say: file layout)": re.compile(
        "se" + r"ed[ _-]?layout|examples/se" + "eds|SE" + r"EDS\b|\b(?:of|in) the se" + r"eds?\b|\bse" + "ed's|se" + "eds'"
    ),
    "unfinished work": re.compile(r"\b(" + "TO" + "DO|FIX" + "ME|X" + r"XX)\b"),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:" + "work|home|root|Users" + r")/(?!dump\b)\w"),
    "a registry": re.compile("pypi" + r"\.org|download\.py" + r"torch\.org|files\.python" + "hosted"),
}


def test_product_text_has_one_word_for_other_tools_files() -> None:
    """What is drawn at random may have a seed; the library's text, its documents and file names have none."""
    word = re.compile(r"(?<![A-Za-z])se" + r"eds?(?![A-Za-z_])", re.IGNORECASE)
    found = [str(path.relative_to(ROOT)) for path in tracked() if word.search(path.name)]
    for path in tracked():
        where = path.relative_to(ROOT)
        if where.parts[0] in ("src", "include", "docs", "completions") or where.parts[:2] == ("python", "csrc") or (
            len(where.parts) == 1 and path.suffix == ".md"
        ):
            found += [f"{where}: {match.group()}" for match in word.finditer(path.read_text())]
    assert found == []


def test_no_leftovers() -> None:
    found = []
    for path in tracked():
        if path.suffix in {".npy", ".pt", ".bin", ".safetensors", ".gz", ".zip"} or "corpus" in path.parts:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for what, pattern in FORBIDDEN.items():
            found += [f"{path.relative_to(ROOT)}: {what}: {match.group()}" for match in pattern.finditer(text)]
    assert found == []
