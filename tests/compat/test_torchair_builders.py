"""The builders of torchair.ge: one for every operator of GE in the library's table, with what the table says it takes."""
import inspect
import math
import pathlib
import re
import statistics
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tensortap import _core
from tensortap.compat import torchair
from tensortap.compat.torchair import _converter, ge
from tensortap.compat.torchair._ge_ops import LOWER
from tensortap.compat.torchair._ge_table import OPS
from tensortap.compat.torchair._lower import Emitter, lower

ROOT = pathlib.Path(__file__).parents[2]
ROWS = {row[1]: row for row in _core.operators() if row[2] == "ge"}
ON_ITS_OWN = {"Const", "Data", "NetOutput"}  # parts of every graph, with functions of their own

torch.manual_seed(0)
VALUES = {
    "x": torch.rand(3, 4) * 1.8 - 0.9,
    "z": torch.rand(3, 4) * 1.8 - 0.9,
    "n": torch.randint(1, 4, (3, 4)),
    "m": torch.randint(1, 4, (3, 4)),
    "b": torch.rand(3, 4) > 0.5,
    "c": torch.rand(3, 4) > 0.5,
    "big": torch.rand(3, 4) + 1,
    "square": torch.rand(4, 4),
    "index": torch.rand(3, 4).argsort(0),
    "row": torch.rand(4),
}
# inputs are x and z unless said otherwise
WHOLE = {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Invert", "LeftShift", "NotEqual", "RightShift"}
TRUTH = {"LogicalAnd", "LogicalNot", "LogicalOr", "LogicalXor"}
GIVEN: dict[str, dict[str, Any]] = {
    "Acosh": {"x": "big"}, "AddN": {"x": ["x", "z", "x"]}, "Addcdiv": {"value": 0.5}, "Addcmul": {"value": 0.5},
    "Adds": {"value": 2.0}, "ArgMaxV2": {"dimension": 1}, "ArgMin": {"dimension": 1}, "Axpy": {"alpha": 2.0},
    "AxpyV2": {"alpha": 2.0}, "BatchMatMul": {"x2": "square"}, "BatchMatMulV2": {"x2": "square"},
    "BroadcastTo": {"shape": [2, 3, 4]}, "Cast": {"x": "big", "dst_type": ge.DataType.DT_INT32},
    "ClipByValue": {"clip_value_min": -0.3, "clip_value_max": 0.2}, "ConcatD": {"x": ["x", "z"], "concat_dim": 1},
    "ConcatV2": {"x": ["x", "z"], "concat_dim": 1}, "Cumprod": {"axis": 1}, "Cumsum": {"axis": 1},
    "Expand": {"shape": [2, 3, 4]}, "ExpandDims": {"axis": 1}, "Fill": {"dims": [2, 2], "value": 0.5},
    "Flatten": {"x": "square"}, "Gather": {"indices": "index"}, "GatherD": {"dim": 0, "index": "index"},
    "GatherElements": {"index": "index"}, "GatherV2": {"indices": "index", "axis": 0},
    "LayerNormV3": {"gamma": "row", "beta": "row", "begin_norm_axis": 1}, "LeakyRelu": {"negative_slope": 0.5},
    "MaskedFill": {"mask": "b", "value": 0.5}, "MatMul": {"x2": "square"}, "MatMulV2": {"x2": "square"},
    "Muls": {"value": 2.0}, "Pack": {"x": ["x", "z"], "axis": 1}, "Range": {"start": 0, "limit": 5, "delta": 2},
    "Reshape": {"shape": [4, 3]}, "ScatterElements": {"indices": "index"},
    "Select": {"condition": "b", "x1": "x"}, "SelectV2": {"condition": "b", "then": "x"},
    "Slice": {"offsets": [0, 1], "size": [2, 2]}, "Split": {"split_dim": 1, "x": "x", "num_split": 2},
    "SplitD": {"split_dim": 1, "num_split": 2}, "SplitV": {"size_splits": [1, 3], "split_dim": 1, "num_split": 2},
    "Tile": {"multiples": [2, 1]}, "TopKV2": {"k": 2}, "Trace": {"x": "square"}, "Transpose": {"perm": [1, 0]},
    "TransposeD": {"perm": [1, 0]}, "Unpack": {"num": 3}, "Unsqueeze": {"axes": [0, 2]},
    **{f"Reduce{what}": {"axes": [1]} for what in ("All", "Any", "Max", "Mean", "Min", "Prod", "Sum")},
    **{f"Reduce{what}D": {"axes": [1]} for what in ("All", "Any", "Max", "Mean", "Min", "Prod", "Sum")},
}  # fmt: skip
X, Z, N, M, B, C, BIG, SQUARE, INDEX, ROW = (value.numpy().astype(np.float64) if value.is_floating_point() else value.numpy() for value in VALUES.values())


def elementwise(function: Any, x: Any = X) -> Any:
    return np.vectorize(function)(x)


def soft(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


SIGMOID = 1 / (1 + np.exp(-X))
ERF = elementwise(math.erf)
MEAN, RSTD = X.mean(1, keepdims=True), 1 / np.sqrt(X.var(1, keepdims=True) + 1e-5)
REDUCED = {"All": X.all(1), "Any": X.any(1), "Max": X.max(1), "Mean": X.mean(1), "Min": X.min(1), "Prod": X.prod(1), "Sum": X.sum(1)}
SCATTERED = np.empty_like(X)
np.put_along_axis(SCATTERED, INDEX, Z, 0)
with np.errstate(invalid="ignore"):
    # what numpy says that each operator gives
    WANTED: dict[str, Any] = {
        "Abs": np.abs(X), "Acos": np.arccos(X), "Acosh": np.arccosh(BIG), "Add": X + Z, "AddN": X + Z + X,
        "Addcdiv": X + 0.5 * Z / Z, "Addcmul": X + 0.5 * Z * Z, "Adds": X + 2, "ArgMaxV2": X.argmax(1),
        "ArgMin": X.argmin(1), "Asin": np.arcsin(X), "Asinh": np.arcsinh(X), "Atan": np.arctan(X),
        "Atan2": np.arctan2(X, Z), "Atanh": np.arctanh(X), "Axpy": X + 2 * Z, "AxpyV2": X + 2 * Z,
        "BatchMatMul": X @ SQUARE, "BatchMatMulV2": X @ SQUARE, "BitwiseAnd": N & M, "BitwiseOr": N | M,
        "BitwiseXor": N ^ M, "BroadcastTo": np.broadcast_to(X, (2, 3, 4)), "Cast": BIG.astype(np.int32),
        "Ceil": np.ceil(X), "ClipByValue": X.clip(-0.3, 0.2), "ConcatD": np.concatenate([X, Z], 1),
        "ConcatV2": np.concatenate([X, Z], 1), "Cos": np.cos(X), "Cosh": np.cosh(X), "Cumprod": X.cumprod(1),
        "Cumsum": X.cumsum(1), "Digamma": elementwise(lambda x: (math.lgamma(x + 1e-6) - math.lgamma(x - 1e-6)) / 2e-6),
        "Div": X / Z, "Elu": np.where(X > 0, X, np.expm1(X)), "Equal": N == M, "Erf": ERF, "Erfc": 1 - ERF,
        "Erfinv": elementwise(lambda x: statistics.NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2)), "Exp": np.exp(X),
        "Expand": np.broadcast_to(X, (2, 3, 4)), "ExpandDims": X[:, None], "Expm1": np.expm1(X),
        "Fill": np.full((2, 2), 0.5), "Flatten": SQUARE, "Floor": np.floor(X), "FloorDiv": np.floor(X / Z),
        "FloorMod": np.mod(X, Z), "Gather": X[INDEX], "GatherD": np.take_along_axis(X, INDEX, 0),
        "GatherElements": np.take_along_axis(X, INDEX, 0), "GatherV2": X[INDEX],
        "Gelu": X / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))),
        "GeluV2": X / 2 * (1 + elementwise(lambda x: math.erf(x / math.sqrt(2)))), "Greater": X > Z, "GreaterEqual": X >= Z,
        "HardSigmoid": (X / 6 + 0.5).clip(0, 1), "HardSwish": X * (X / 6 + 0.5).clip(0, 1), "Identity": X,
        "Invert": ~N, "IsFinite": np.isfinite(X), "IsInf": np.isinf(X), "IsNan": np.isnan(X),
        "LayerNormV3": [(X - MEAN) * RSTD * ROW + ROW, MEAN, RSTD], "LeakyRelu": np.where(X > 0, X, X / 2),
        "LeftShift": N << M, "Lerp": X + Z * (Z - X), "Less": X < Z, "LessEqual": X <= Z, "Lgamma": elementwise(math.lgamma),
        "Log": np.log(X), "Log1p": np.log1p(X), "LogSoftmaxV2": np.log(soft(X)), "LogicalAnd": B & C,
        "LogicalNot": ~B, "LogicalOr": B | C, "LogicalXor": B ^ C, "MaskedFill": np.where(B, 0.5, X),
        "MatMul": X @ SQUARE, "MatMulV2": X @ SQUARE, "Maximum": np.maximum(X, Z), "Minimum": np.minimum(X, Z),
        "Mish": X * np.tanh(np.log1p(np.exp(X))), "Mod": np.fmod(X, Z), "Mul": X * Z, "Muls": X * 2, "Neg": -X,
        "NextAfter": np.nextafter(np.float32(X), np.float32(Z)), "NotEqual": N != M, "OnesLike": np.ones((3, 4)),
        "Pack": np.stack([X, Z], 1), "Pow": X**Z, "Range": np.arange(0, 5, 2), "RealDiv": X / Z,
        "Reciprocal": 1 / X, "Relu": X.clip(0), "Relu6": X.clip(0, 6), "ReluGrad": np.where(Z > 0, X, 0),
        "Reshape": X.reshape(4, 3), "RightShift": N >> M, "Rint": np.rint(X), "Round": np.rint(X),
        "Rsqrt": 1 / np.sqrt(X), "ScatterElements": SCATTERED, "Select": np.where(B, X, Z),
        "SelectV2": np.where(B, X, Z), "Selu": 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * np.expm1(X)),
        "Shape": [3, 4], "Sigmoid": SIGMOID, "SigmoidGrad": Z * X * (1 - X), "Sign": np.sign(X), "Sin": np.sin(X),
        "Sinh": np.sinh(X), "Slice": X[:2, 1:3], "SoftmaxV2": soft(X), "SoftplusV2": np.log1p(np.exp(X)),
        "Sort": [np.sort(X), X.argsort()], "Split": [X[:, :2], X[:, 2:]], "SplitD": [X[:, :2], X[:, 2:]],
        "SplitV": [X[:, :1], X[:, 1:]], "Sqrt": np.sqrt(X), "Square": X * X, "SquaredDifference": (X - Z) ** 2,
        "Squeeze": X, "Sub": X - Z, "Swish": X * SIGMOID, "Tan": np.tan(X), "Tanh": np.tanh(X),
        "TanhGrad": Z * (1 - X * X), "TensorMove": X, "Tile": np.tile(X, (2, 1)),
        "TopKV2": [-np.sort(-X)[:, :2], (-X).argsort()[:, :2]], "Trace": np.trace(SQUARE), "Transpose": X.T,
        "TransposeD": X.T, "Tril": np.tril(X), "Triu": np.triu(X), "Trunc": np.trunc(X),
        "TruncateDiv": np.trunc(X / Z), "Unpack": [X[0], X[1], X[2]], "Unsqueeze": X[None, :, None],
        "Xlogy": X * np.log(Z), "ZerosLike": np.zeros((3, 4)),
        **{f"Reduce{what}": value for what, value in REDUCED.items()},
        **{f"Reduce{what}D": value for what, value in REDUCED.items()},
    }  # fmt: skip


class Building:
    """A graph of GE being built over VALUES, and torch's graph that it becomes."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.mode = FakeTensorMode()
        nodes = {}
        for name, value in VALUES.items():
            nodes[name] = self.graph.placeholder(name)
            nodes[name].meta["val"] = self.mode.from_tensor(value)
        self.end = self.graph.output(())
        self.emit = Emitter(self.graph, self.end, self.mode)
        self.ge = ge.GeGraph("all")
        self.known: dict[Any, Any] = {}
        self.inputs = {}
        with self.ge:
            for index, (name, value) in enumerate(VALUES.items()):
                made = ge.Data(index=index, dtype=value.dtype, shape=list(value.shape), node_name=name)
                made.set_meta(nodes[name].meta["val"])
                self.known[id(made.node), 0] = nodes[name]
                self.inputs[name] = made
        self.ge.on_add = lambda op: lower(op, self.emit, self.known)

    def given(self, value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], str):
            return [self.inputs[each] for each in value]
        return self.inputs[value] if isinstance(value, str) else value

    def build(self, name: str, **more: Any) -> list[Any]:
        """Torch's nodes for one operator with the arguments above."""
        first, other = ("n", "m") if name in WHOLE else ("b", "c") if name in TRUTH else ("x", "z")
        keywords = [key for key, text in zip(OPS[name].keywords, OPS[name].inputs, strict=True) if not text.endswith("?")]
        wanted: dict[str, Any] = {key: other if index else first for index, key in enumerate(keywords)}
        with self.ge:
            wanted |= GIVEN.get(name, {}) | more
            made = getattr(ge, name)(**{key: self.given(value) if key in OPS[name].keywords else value for key, value in wanted.items()})
        return [self.known[id(each.node), each.index] for each in (made if isinstance(made, list) else [made])]

    def module(self, results: list[Any]) -> torch.fx.GraphModule:
        self.end.args = (tuple(results),)
        self.graph.lint()
        return torch.fx.GraphModule({}, self.graph)


def computed(name: str, **more: Any) -> Any:
    building = Building()
    results = building.module([building.emit.tensor(each) for each in building.build(name, **more)])(*VALUES.values())
    return results[0] if len(results) == 1 else list(results)


def test_one_table() -> None:
    """Every operator of ours that names one of GE names a row, every row has a builder, and all but three can be run."""
    assert set(ROWS) == set(OPS) and len(OPS) > 150
    assert {row[1] for row in _core.operators() if row[1]} == set(ROWS)
    assert all(callable(getattr(ge, name)) for name in ROWS) and set(ROWS) <= set(dir(ge))
    assert set(OPS) - set(LOWER) == ON_ITS_OWN and set(GIVEN) | WHOLE | TRUTH <= set(OPS)
    for name, (_, _, _, params, count, outputs, doc) in ROWS.items():
        assert list(OPS[name].inputs) == params[:count] and list(OPS[name].outputs) == outputs and doc.endswith(".")
        names = [re.split("[:?*]", each)[0] for each in params]
        assert len(set(names[:count])) == count and len(set(names[count:])) == len(names) - count
    written = re.findall(r'^GE\((\w+),\s*"(.*?)",\s*"(.*?)",\s*"(.*?)",', (ROOT / "src/graph/ops.def").read_text(), re.M)
    texts = [(row[1], ", ".join(row[3][: row[4]]), ", ".join(row[3][row[4] :]), ", ".join(row[5])) for row in ROWS.values()]
    assert texts == written and [row[0] for row in written] == sorted(ROWS)  # nothing is cut short on the way


def test_every_operator_is_built_and_run() -> None:
    """All in one graph, run by the engine: what each gives is what numpy says."""
    building = Building()
    results, wanted = [], []
    for name in sorted(set(OPS) - ON_ITS_OWN):
        said = WANTED[name] if isinstance(WANTED[name], list) and name != "Shape" else [WANTED[name]]
        for made, value in zip(building.build(name), said, strict=True):
            results.append(building.emit.tensor(made))
            wanted.append((name, np.asarray(value)))
    module = building.module(results)
    found = torch.compile(module, backend=torchair.get_npu_backend(), fullgraph=True)(*VALUES.values())
    assert {op.type for op in building.ge.ops} >= set(OPS) - {"NetOutput"}
    for (name, value), ours in zip(wanted, found, strict=True):
        assert ours.dtype.is_floating_point == (value.dtype.kind == "f") and (ours.dtype == torch.bool) == (value.dtype.kind == "b"), name
        np.testing.assert_allclose(ours.numpy(), value, rtol=2e-5, atol=2e-6, err_msg=name)


def test_a_row_of_the_same_meaning_has_a_kernel() -> None:
    """What a row of ours names as the same of GE becomes an operator that the engine has."""
    same = {row[1] for row in _core.operators() if row[1] and row[2] not in ("ge", "data", "const", "output")}
    building = Building()
    for name in sorted(same):
        (node,) = building.build(name)
        assert _core.engine_knows(str(node.target)), (name, str(node.target))


@pytest.mark.parametrize(("name", "more", "wanted"), [
    ("Exp", {"base": 2.0, "scale": 3.0, "shift": 0.5}, 2 ** (3 * X + 0.5)),
    ("Log", {"base": 10.0, "scale": 0.5, "shift": 1.0}, np.log10(X / 2 + 1)),
    ("HardSigmoid", {"alpha": 0.5, "beta": 0.25}, np.clip(0.5 * X + 0.25, 0, 1)),
    ("Round", {"decimals": 1}, np.round(X, 1)),
    ("SelectV2", {"else_changed_as_is_python_key": 0.25}, np.where(B, X, 0.25)),
    ("Cumsum", {"reverse": True}, np.flip(np.cumsum(np.flip(X, 1), 1), 1)),
    ("ScatterElements", {"reduction": "add"}, X + SCATTERED),
    ("ScatterElements", {"reduction": "mul"}, X * SCATTERED),
    ("GeluV2", {"approximate": "tanh"}, WANTED["Gelu"]),
    ("Swish", {"scale": 2.0}, X / (1 + np.exp(-2 * X))),
    ("ReduceMean", {"axes": []}, X),
    ("ReduceMean", {"axes": [], "noop_with_empty_axes": False}, X.mean()),
    ("ReduceMeanD", {"axes": []}, X.mean()),
    ("MatMulV2", {"x1": "square", "transpose_x1": True}, SQUARE.T @ SQUARE),
])  # fmt: skip
def test_what_attributes_mean(name: str, more: dict[str, Any], wanted: Any) -> None:
    np.testing.assert_allclose(computed(name, **more).numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "more", "text"), [
    ("Cumsum", {"exclusive": True}, "ge.Cumsum: exclusive=True cannot be run here"),
    ("GatherV2", {"batch_dims": 1}, "ge.GatherV2: batch_dims=1 cannot be run here"),
    ("MatMulV2", {"offset_x": 3}, "ge.MatMulV2: offset_x=3 cannot be run here"),
    ("ScatterElements", {"reduction": "max"}, "ge.ScatterElements: reduction='max' cannot be run here"),
])  # fmt: skip
def test_what_cannot_be_run_says_so(name: str, more: dict[str, Any], text: str) -> None:
    with pytest.raises(NotImplementedError, match=re.escape(text)):
        Building().build(name, **more)


@pytest.mark.parametrize("name", sorted(OPS))
def test_wrong_arguments_are_named(name: str) -> None:
    """A message has the operator's name and the argument's, whatever is missing or too much."""
    row, building = OPS[name], Building()
    building.ge.on_add = None
    x = building.inputs["x"]
    all_given: dict[str, Any] = {key: [x] if text.endswith("*") else x for key, text in zip(row.keywords, row.inputs, strict=True)}
    optional = {key for key, text in zip(row.keywords, row.inputs, strict=True) if text.endswith("?")} | {"shape"}
    kinds = {"Int": 1, "Float": 1.0, "Bool": True, "Str": "none", "DataType": 0, "ListInt": [1]}
    all_given |= {each.keyword: kinds[each.type] for each in row.attrs if each.required}
    if name == "Const":
        all_given["value"] = 1
    builder = getattr(ge, name)
    with building.ge:
        builder(**all_given)
        for key in set(all_given) - optional:
            with pytest.raises(TypeError, match=rf"{name}\b.*\b{key}\b"):
                builder(**{other: value for other, value in all_given.items() if other != key})
        for key in ("nonsense", "size_of_nonsense"):
            with pytest.raises(TypeError, match=rf"{name}\b.*\b{key}\b"):
                builder(**all_given, **{key: 1})
        for each in row.attrs:
            if name not in ON_ITS_OWN | {"Cast"}:
                wrong = 1 if each.type in ("Str", "ListInt") else "text"
                with pytest.raises(TypeError, match=rf"ge\.{name}\b.*\b{each.keyword}\b"):
                    builder(**all_given | {each.keyword: wrong})
    assert len(building.ge.ops) == len(VALUES) + 1  # what failed left nothing behind


def test_signatures_are_torchairs() -> None:
    def shown(name: str) -> str:
        return str(inspect.signature(getattr(ge, name))).replace(", dependencies=(), node_name=None", "")

    assert shown("Add") == "(x1, x2, *)"
    assert shown("MatMulV2") == "(x1, x2, bias=None, offset_w=None, *, transpose_x1=False, transpose_x2=False, offset_x=0)"
    assert shown("SplitD") == "(x, *, size_of_y=None, split_dim, num_split)"
    assert shown("SelectV2").startswith("(condition, then, else_changed_as_is_python_key")
    assert shown("GatherD") == "(x, dim, index, *, dim_changed_as_duplicate_with_input=0)"
    assert shown("ArgMaxV2") == f"(x, dimension, *, dtype={ge.DataType.DT_INT64})"
    assert ge.Add.__doc__ == ROWS["Add"][-1]


def test_custom_op_takes_rows_of_the_table() -> None:
    building = Building()
    with building.ge:
        made = ge.custom_op("ReduceSumD", building.inputs["x"], [1], True)
    assert made.rank == 2 and made.node.attrs["keep_dims"].value is True and made.node.output_names == ["y"]


@pytest.mark.parametrize(("type", "inputs", "attrs", "text"), [
    ("Add", {"x1": "x"}, {}, "the GE operator Add (mine): the input x2 is missing"),
    ("Add", {"x1": "x", "x2": "x", "x3": "x"}, {}, "the GE operator Add (mine) has no input x3; there are x1, x2"),
    ("Muls", {"x": "x"}, {"alpha": 1.0}, "the GE operator Muls (mine) has no attribute alpha; there are value"),
    ("Muls", {"x": "x"}, {}, "the GE operator Muls (mine): the attribute value is missing"),
])  # fmt: skip
def test_custom_op_by_name_is_checked(type: str, inputs: dict[str, str], attrs: dict[str, Any], text: str) -> None:
    building = Building()
    held = {name: ge.attr.Float(value) for name, value in attrs.items()}
    with building.ge, pytest.raises(TypeError, match=re.escape(text)):
        ge.custom_op(type, inputs={name: building.inputs[value] for name, value in inputs.items()}, attrs=held, outputs=["y"], node_name="mine")


def test_a_builder_in_a_converter() -> None:
    before = dict(_converter._converters)

    @torchair.register_fx_node_ge_converter(torch.ops.aten.isinf.default)
    def convert(self: Any, meta_outputs: Any = None) -> Any:
        return ge.IsFinite(self)

    try:
        x = torch.tensor([1, float("inf"), float("nan")])
        run = torch.compile(lambda x: x.isinf(), backend=torchair.get_npu_backend(), fullgraph=True)
        assert run(x).tolist() == [True, False, False]
    finally:
        _converter._converters.clear()
        _converter._converters.update(before)
