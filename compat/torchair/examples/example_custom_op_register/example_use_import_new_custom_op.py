"""Uses the operator that new_custom_op.py registers."""
import new_custom_op  # noqa: F401
import torch
import torchair


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.ops.npu_define.custom_op(x, y)


opt_model = torch.compile(Model(), backend=torchair.get_npu_backend(), fullgraph=True)
x, y = torch.randn(2, 2), torch.randn(2, 2)
assert torch.equal(opt_model(x, y), x + y)
print("custom_op agrees with add")
