"""The Chinese texts: every text a person may see has one, none is left over, and formats take the same arguments."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "src/base/text_zh.def"

# function or macro: which argument is translated
CALLS = {
    "N_": 0,
    "tap_text": 0,
    "say": 1,
    "trouble": 1,
    "trouble_usage": 1,
    "tap__log": 1,
    "tap_fail": 2,
    "tap_fail_errno": 2,
    "tap__fail": 5,
}
# a whole row of one of these X-macros: which arguments are translated
MACRO_TABLES = {"TAP_STATUS_MAP": (2, 3)}

PRI = {"PRId64": "ld", "PRIu64": "lu", "PRIx64": "lx"}
CONVERSION = re.compile(r"%(?:%|[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j|t)?[a-zA-Z])")
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|/\*.*?\*/|//[^\n]*|\w+|[^\s]', re.S)


def tokens(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8").replace("\\\n", "\n")
    return [t for t in TOKEN.findall(text) if not t.startswith(("/*", "//"))]


def unquote(literal: str) -> str:
    out = literal[1:-1]
    out = re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m.group(1), 16)), out)
    return out.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\").replace("\\t", "\t")


def literals(part: list[str]) -> list[str]:
    """String literals of some tokens, neighbours joined as the compiler does."""
    found: list[str] = []
    joined = False
    for token in part:
        text = unquote(token) if token.startswith('"') else PRI.get(token)
        if text is None:
            joined = False
        elif joined:
            found[-1] += text
        else:
            found.append(text)
            joined = True
    return found


def arguments(part: list[str], start: int) -> list[list[str]]:
    """The arguments of the call whose "(" is at start."""
    depth, out = 0, [[]]
    for token in part[start:]:
        if token in "([{":
            depth += 1
            if depth == 1:
                continue
        if token in ")]}":
            depth -= 1
            if depth == 0:
                return out
        if token == "," and depth == 1:
            out.append([])
        else:
            out[-1].append(token)
    return []


def calls(part: list[str], names: dict[str, int]):
    for i, token in enumerate(part[:-1]):
        if token in names and part[i + 1] == "(":
            yield token, arguments(part, i + 1)


def sources() -> list[Path]:
    files = [f for folder in ("src", "include", "python/csrc") for f in sorted((ROOT / folder).rglob("*.[ch]"))]
    return [f for f in files if f.name != "text.c"]


def named(part: list[str], argument: list[str]) -> list[str]:
    """An argument that is one name: the text of that `static const char NAME[]`; any other as it stands."""
    if len(argument) == 1:
        begin = ["static", "const", "char", argument[0], "[", "]", "="]
        for i in range(len(part) - len(begin)):
            if part[i : i + len(begin)] == begin:
                return part[i + len(begin) : part.index(";", i)]
    return argument


def wanted() -> dict[str, str]:
    """Every text that is translated where it is shown, and where it stands."""
    out: dict[str, str] = {}
    for path in sources():
        part = tokens(path)
        for name, args in calls(part, CALLS):
            if len(args) > CALLS[name]:
                for text in literals(named(part, args[CALLS[name]])):
                    out.setdefault(text, path.name)
        for table, columns in MACRO_TABLES.items():
            if table in part and path.suffix == ".h":
                rows = part[part.index(table) :]
                rows = rows[: rows.index("typedef")] if "typedef" in rows else rows
                for _, args in calls(rows, {"X": 0}):
                    for column in columns:
                        if len(args) > column:
                            for text in literals(args[column]):
                                out.setdefault(text, path.name)
    return {text: place for text, place in out.items() if re.search(r"[A-Za-z]{2}", CONVERSION.sub("", text))}


def rows() -> list[tuple[str, str]]:
    return [("".join(literals(args[0])), "".join(literals(args[1]))) for _, args in calls(tokens(TABLE), {"T": 0})]


def conversions(text: str) -> list[str]:
    return [c for c in CONVERSION.findall(text) if c != "%%"]


def test_every_text_is_translated():
    known = {english for english, _ in rows()}
    missing = [f"{place}: {text!r}" for text, place in wanted().items() if text not in known]
    assert not missing, "add to src/base/text_zh.def:\n" + "\n".join(missing)


def test_no_row_is_left_over():
    every = set()
    for path in sources():
        every.update(literals(tokens(path)))
    stale = [english for english, _ in rows() if english not in every]
    assert not stale, "no source says any more:\n" + "\n".join(stale)


def test_no_row_is_there_twice():
    keys = [english for english, _ in rows()]
    assert sorted(set(keys)) == sorted(keys)


def test_formats_take_the_same_arguments():
    for english, chinese in rows():
        assert conversions(english) == conversions(chinese), english
        assert english.endswith("\n") == chinese.endswith("\n"), english


def test_rows_are_chinese():
    for english, chinese in rows():
        assert chinese == english or re.search(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]", chinese), english
