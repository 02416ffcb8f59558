"""The shape of the tree: which directory may include which, unique file names, what no file may contain."""

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path

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
