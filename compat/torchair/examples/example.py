"""A model compiled by torchair, beside the same model run eagerly."""
import tensortap.compat

tensortap.compat.install()
import torch
import torchair


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.add(x, y, alpha=2).relu()


model = Model()
opt_model = torch.compile(model, backend=torchair.get_npu_backend(), dynamic=True)
x, y = torch.randn(4, 4), torch.randn(4, 4)
assert torch.allclose(opt_model(x, y), model(x, y))
print("compiled and eager agree")
