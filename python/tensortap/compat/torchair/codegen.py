"""python -m tensortap.compat.torchair.codegen HEADER OUT: builders for the operators that a C++ header registers.

HEADER has REG_OP(Name).INPUT(...).ATTR(...).OUTPUT(...).OP_END_FACTORY_REG(Name); OUT is a Python file with one
function for each, which converters call.
"""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

from ._ge_table import python_name

_INPUTS = {"INPUT": "", "OPTIONAL_INPUT": "?", "DYNAMIC_INPUT": "*"}
_OUTPUTS = {"OUTPUT": "", "DYNAMIC_OUTPUT": "*"}
_UNSUPPORTED = ("OPTIONAL_OUTPUT", "GRAPH", "DYNAMIC_GRAPH")
_SKIPPED = (
    "Const", "Data", "Constant", "Cast", "Variable", "VariableV2", "Placeholder", "PlaceholderV2",
    "PlaceholderWithDefault",
)  # fmt: skip
# the header's type: the attribute's class, Python's type
_TYPES = {
    "Int": ("Int", "int"), "Float": ("Float", "float"), "Bool": ("Bool", "bool"), "String": ("Str", "str"),
    "Type": ("DataType", "int"), "ListInt": ("ListInt", "List[int]"), "ListFloat": ("ListFloat", "List[float]"),
    "ListBool": ("ListBool", "List[bool]"), "ListString": ("ListStr", "List[str]"),
    "ListType": ("ListDataType", "List[int]"), "ListListInt": ("ListListInt", "List[List[int]]"),
}  # fmt: skip


class Attribute(NamedTuple):
    """One ATTR."""

    name: str
    type: str
    default: str | None


class Registered(NamedTuple):
    """One REG_OP."""

    name: str
    inputs: list[tuple[str, str]]
    attrs: list[Attribute]
    outputs: list[tuple[str, str]]
    text: str
    why_not: str


def _calls(text: str) -> list[tuple[str, str]]:
    """".INPUT(x, TensorType({...}))" and the like, with what is between the outermost parentheses."""
    found, at = [], 0
    while match := re.compile(r"\.\s*([A-Z_]+)\s*\(").search(text, at):
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if depth:
            raise ValueError(f".{match[1]}( is never closed")
        found.append((match[1], text[match.end() : end - 1].strip()))
        at = end
    return found


def _default(kind: str, text: str) -> str:
    """A C++ literal as Python's."""
    text = text.strip()
    if kind == "Type":
        return f"DataType.{text.replace('ge::', '')}"
    text = text.replace("{", "[").replace("}", "]")
    text = {"true": "True", "false": "False"}.get(text, text)
    text = re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", text))
    return re.sub(r"(?<=[\d.])f\b", "", text)


def parse(header: str) -> list[Registered]:
    """The operators of a header's text; raises ValueError for one that is not written as they are."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.S)
    found = []
    for match in re.finditer(r"REG_OP\s*\(\s*(\w+)\s*\)(.*?)\.\s*OP_END_FACTORY_REG\s*\(\s*(\w+)\s*\)", text, re.S):
        name, body, end = match.groups()
        if name != end:
            raise ValueError(f"REG_OP({name}) ends in OP_END_FACTORY_REG({end})")
        found.append(_operator(name, body))
    if not found:
        raise ValueError("there is no REG_OP(...) ... OP_END_FACTORY_REG(...)")
    return found


def _operator(name: str, body: str) -> Registered:
    made = Registered(name, [], [], [], " ".join(body.split()), "")
    why = "Deformed prototype" if name in _SKIPPED else ""
    for call, given in _calls(body):
        first, _, rest = given.partition(",")
        if call in _INPUTS:
            made.inputs.append((first.strip(), _INPUTS[call]))
        elif call in _OUTPUTS:
            made.outputs.append((first.strip(), _OUTPUTS[call]))
        elif call in ("ATTR", "REQUIRED_ATTR"):
            kind, _, default = rest.strip().partition(",")
            if kind.strip() not in _TYPES:
                what = f"the attribute {first.strip()} has the type {kind.strip()}"
                raise ValueError(f"{name}: {what}, which is not known")
            given_default = _default(kind.strip(), default) if call == "ATTR" else None
            made.attrs.append(Attribute(first.strip(), kind.strip(), given_default))
        elif call in _UNSUPPORTED:
            why = f"{call} is not supported"
        elif call != "DATATYPE":
            raise ValueError(f"{name}: .{call}(...) is not known")
    return made._replace(why_not=why)


def function(op: Registered) -> str:
    """The builder's text."""
    taken: set[str] = set()
    inputs = [(name, mark, python_name(name, taken)) for name, mark in op.inputs]
    attrs = [(each, python_name(each.name, taken)) for each in op.attrs]
    kinds = {"": "Tensor", "?": "Optional[Tensor]", "*": "List[Tensor]"}
    parts = [f"{safe}: {kinds[mark]}" for _, mark, safe in inputs] + ["*"]
    parts += [f"size_of_{name}: int" for name, mark in op.outputs if mark]
    parts += [f"{safe}: {_TYPES[each.type][1]}" for each, safe in attrs if each.default is None]
    parts += [f"{safe}: {_TYPES[each.type][1]} = {each.default}" for each, safe in attrs if each.default is not None]
    parts.append("node_name: Optional[str] = None")
    held = ", ".join(f'"{each.name}": attr.{_TYPES[each.type][0]}({safe})' for each, safe in attrs)
    outputs = ", ".join(f'("{name}", size_of_{name})' if mark else f'"{name}"' for name, mark in op.outputs)
    given = ", ".join(f'"{name}": {safe}' for name, _, safe in inputs)
    lines = [
        f"# This api is auto-generated from IR {op.name}",
        f"def {op.name}({', '.join(parts)}):",
        f'    """REG_OP({op.name}){op.text}"""',
        "    return custom_op(",
        f'        "{op.name}",',
        f"        inputs={{{given}}},",
        f"        attrs={{{held}}},",
        f"        outputs=[{outputs}],",
        "        node_name=node_name,",
        "    )",
    ]
    return "\n".join(lines) + "\n"


def generate(header: str) -> str:
    """The Python file for a header's text."""
    ops = parse(header)
    made = [op for op in ops if not op.why_not]
    head = [
        "# Auto-generated from REG_OP; do not edit.",
        f"# Summary: total {len(ops)}, generated {len(made)}, skipped {len(ops) - len(made)}",
        *[f"# IR {op.name} skipped as {op.why_not}" for op in ops if op.why_not],
        "from typing import List, Optional",
        "",
        "from torchair.ge import DataType, Tensor, attr, custom_op",
        "",
        "",
    ]
    return "\n".join(head) + "\n" + "\n\n".join(function(op) for op in made)


def main(args: list[str]) -> int:
    """The command; returns the exit status."""
    if len(args) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source, out = args
    if os.path.islink(out):
        print(f"codegen: {out} is a link; it is not written to", file=sys.stderr)
        return 1
    try:
        with open(source, encoding="utf-8") as file:
            text = generate(file.read())
    except (OSError, ValueError) as error:
        print(f"codegen: {source}: {error}", file=sys.stderr)
        return 1
    with open(out, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"codegen: wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
