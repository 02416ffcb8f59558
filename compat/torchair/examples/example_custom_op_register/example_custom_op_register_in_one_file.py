"""An operator of one's own, registered and used in one file."""
import tensortap.compat

tensortap.compat.install()
from typing import Any

import torch
import torchair
from torch.library import Library, impl
from torchair.ge import Add
from torchair.ge_concrete_graph.ge_converter.converter_utils import Tensor, dtype_promote, register_fx_node_ge_converter

m = Library("npu_define", "DEF")
m.define("custom_op(Tensor input1, Tensor input2) -> Tensor")


@impl(m, "custom_op", "PrivateUse1")
def plug_custom_op(x: torch.Tensor, y: torch.Tensor):
    return x + y


@impl(m, "custom_op", "Meta")
def custom_op_meta(x, y):
    return torch.empty_like(x)


@register_fx_node_ge_converter(torch.ops.npu_define.custom_op.default)
def conveter_custom_op(input1: Tensor, input2: Tensor, out: Tensor = None, meta_outputs: Any = None):
    input1, input2 = dtype_promote(input1, input2, target_dtype=meta_outputs.dtype)
    return Add(input1, input2)


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.ops.npu_define.custom_op(x, y)


opt_model = torch.compile(Model(), backend=torchair.get_npu_backend(), fullgraph=True)
x, y = torch.randn(2, 2), torch.randn(2, 2)
assert torch.equal(opt_model(x, y), x + y)
print("custom_op agrees with add")
