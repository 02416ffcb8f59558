"""Models people train, small and with random weights: what test_models.py runs.

Each row of MODELS makes a module and two sets of arguments that differ in the sizes people vary (batch, length). The
module gives a loss first, then whatever else it has to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Model:
    name: str
    make: Callable[[], nn.Module]
    arguments: Callable[[int], tuple[Tensor, ...]]  # of set 0 or 1


# --------------------------------------------------------------------------------------------------- from transformers


class Language(nn.Module):
    """A causal language model with its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model(input_ids=ids, use_cache=False).logits
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
        return loss, logits


def gpt2(dropout: float = 0.0, attention: str = "sdpa") -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=96, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
        attn_implementation=attention, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return Language(GPT2LMHeadModel(config))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=32, attn_implementation="sdpa", bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return Language(LlamaForCausalLM(config))


class Bert(nn.Module):
    def __init__(self) -> None:
        from transformers import BertConfig, BertModel

        super().__init__()
        config = BertConfig(
            vocab_size=96, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
        )  # fmt: skip
        self.bert = BertModel(config)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = self.bert(input_ids=ids, attention_mask=mask)
        return out.last_hidden_state.square().mean() + out.pooler_output.mean(), out.last_hidden_state, out.pooler_output


class T5(nn.Module):
    def __init__(self) -> None:
        from transformers import T5Config, T5ForConditionalGeneration

        super().__init__()
        config = T5Config(
            vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=4, dropout_rate=0.0,
            feed_forward_proj="gated-gelu", decoder_start_token_id=0,
        )  # fmt: skip
        self.t5 = T5ForConditionalGeneration(config)

    def forward(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        out = self.t5(input_ids=ids, decoder_input_ids=labels, use_cache=False)
        return F.cross_entropy(out.logits.flatten(0, 1), labels.flatten()), out.logits


class ViT(nn.Module):
    def __init__(self) -> None:
        from transformers import ViTConfig, ViTModel

        super().__init__()
        config = ViTConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=4,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        self.vit = ViTModel(config)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        out = self.vit(pixel_values=images)
        return out.pooler_output.square().sum(), out.last_hidden_state


# --------------------------------------------------------------------------------------------------------- convolution


class ResidualBlock(nn.Module):
    def __init__(self, wide: int, narrow: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(wide, narrow, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(narrow)
        self.second = nn.Conv2d(narrow, narrow, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(narrow)
        self.short = nn.Sequential(nn.Conv2d(wide, narrow, 1, stride, bias=False), nn.BatchNorm2d(narrow)) if stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.second(F.relu(self.norm1(self.first(x)), inplace=True)))
        return F.relu(y + (self.short(x) if self.short else x), inplace=True)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2), ResidualBlock(16, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(torch.flatten(F.adaptive_avg_pool2d(self.blocks(self.stem(images)), 1), 1))
        return F.cross_entropy(logits, labels, label_smoothing=0.1), logits


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = self.block(1, 8), self.block(8, 16), self.block(16, 16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 16, 2, 2), nn.Conv2d(16, 8, 3, padding=1)
        self.join2, self.join1, self.out = self.block(32, 16), self.block(16, 8), nn.Conv2d(8, 2, 1)

    @staticmethod
    def block(wide: int, narrow: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(wide, narrow, 3, padding=1), nn.GroupNorm(4, narrow), nn.SiLU(), nn.Conv2d(narrow, narrow, 3, padding=1), nn.LeakyReLU(0.1)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.avg_pool2d(b, 2))
        d = self.join2(torch.cat([self.up2(c), b], 1))
        e = self.up1(F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False))
        y = self.out(self.join1(torch.cat([e, a], 1)))
        return F.binary_cross_entropy_with_logits(y, (x > 0).float().expand_as(y)), y


class DiffusionBlock(nn.Module):
    """One level of a latent diffusion model: time embedding, residual block, self and cross attention."""

    def __init__(self, channels: int = 16, context: int = 12) -> None:
        super().__init__()
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, 32), nn.SiLU(), nn.Linear(32, 2 * channels))
        self.norm1, self.norm2, self.norm3 = nn.GroupNorm(4, channels), nn.GroupNorm(4, channels), nn.LayerNorm(channels)
        self.conv1, self.conv2 = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.own = nn.MultiheadAttention(channels, 4, batch_first=True)
        self.query, self.key, self.value = nn.Linear(channels, channels), nn.Linear(context, channels), nn.Linear(context, channels)
        self.gate = nn.Linear(channels, 4 * channels)
        self.last = nn.Linear(2 * channels, channels)

    def embed(self, steps: Tensor, like: Tensor) -> Tensor:
        half = self.channels // 2
        waves = torch.exp(-math.log(10000.0) * torch.arange(half, device=steps.device) / half)
        angles = steps[:, None].to(like.dtype) * waves[None]
        return torch.cat([angles.cos(), angles.sin()], -1).to(like.dtype)

    def forward(self, x: Tensor, steps: Tensor, context: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = self.time(self.embed(steps, x))[:, :, None, None].chunk(2, 1)
        h = self.conv1(F.silu(self.norm1(x)))
        h = x + self.conv2(F.silu(self.norm2(h) * (1 + scale) + shift))
        batch, channels, height, width = h.shape
        tokens = self.norm3(h.flatten(2).transpose(1, 2))
        tokens = tokens + self.own(tokens, tokens, tokens, need_weights=False)[0]

        def heads(y: Tensor) -> Tensor:
            return y.unflatten(-1, (4, -1)).transpose(1, 2)

        crossed = F.scaled_dot_product_attention(heads(self.query(tokens)), heads(self.key(context)), heads(self.value(context)))
        tokens = tokens + crossed.transpose(1, 2).flatten(2)
        left, right = self.gate(tokens).chunk(2, -1)
        tokens = tokens + self.last(left * F.gelu(right))
        out = x + tokens.transpose(1, 2).reshape(batch, channels, height, width)
        return F.mse_loss(out, noise), out


# ----------------------------------------------------------------------------------------------------------- sequences


class LstmCells(nn.Module):
    """A cell written by hand, unrolled over time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.x, self.h, self.out = nn.Embedding(20, 8), nn.Linear(8, 64), nn.Linear(16, 64), nn.Linear(16, 20)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(ids)
        h = x.new_zeros(x.shape[0], 16)
        c, outputs = h, []
        for t in range(6):
            i, f, g, o = (self.x(x[:, t]) + self.h(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        logits = self.out(torch.stack(outputs, 1))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()), logits


class LstmLayer(nn.Module):
    """torch's own layer, which torch unrolls when it traces it: the length is one of the fixed sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 8), nn.Linear(32, 20)
        self.lstm = nn.LSTM(8, 16, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, _) = self.lstm(self.embed(ids))
        logits = self.out(y)
        return F.nll_loss(F.log_softmax(logits, -1).flatten(0, 1), ids.flatten()), logits, h


class MixtureOfExperts(nn.Module):
    """Top-2 routing with a balancing loss; every expert is applied to the tokens it is weighted for."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.experts = experts
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, width, 2 * width) / 4)
        self.w2 = nn.Parameter(torch.randn(experts, 2 * width, width) / 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.norm(x).flatten(0, 1)
        weights = torch.softmax(self.router(tokens), -1)
        top, chosen = torch.topk(weights, 2, -1)
        top = top / top.sum(-1, keepdim=True)
        dispatch = torch.zeros_like(weights).scatter(1, chosen, top)
        hidden = F.gelu(torch.einsum("td,edh->eth", tokens, self.w1), approximate="tanh")
        out = torch.einsum("eth,ehd,te->td", hidden, self.w2, dispatch)
        load = F.one_hot(chosen[:, 0], self.experts).to(weights.dtype).mean(0)
        balance = self.experts * (load * weights.mean(0)).sum()
        y = x + out.view_as(x)
        return y.square().mean() + 0.01 * balance, y


class Mamba(nn.Module):
    """A selective state-space layer: short depthwise convolution, then a scan over time with input-dependent steps."""

    def __init__(self, width: int = 8, inner: int = 16, state: int = 4, length: int = 7) -> None:
        super().__init__()
        self.inner, self.state, self.length = inner, state, length
        self.enter, self.leave = nn.Linear(width, 2 * inner), nn.Linear(inner, width)
        self.conv = nn.Conv1d(inner, inner, 3, padding=2, groups=inner)
        self.project, self.step = nn.Linear(inner, 2 * state + 1), nn.Linear(1, inner)
        self.log_a = nn.Parameter(torch.log(torch.arange(1, state + 1, dtype=torch.float32)).repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u, gate = self.enter(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : self.length].transpose(1, 2))
        step, b, c = self.project(u).split([1, self.state, self.state], -1)
        step = F.softplus(self.step(step))
        decay = torch.exp(step[..., None] * -torch.exp(self.log_a))
        inflow = (step * u)[..., None] * b[:, :, None, :]
        h, outputs = torch.zeros_like(inflow[:, 0]), []
        for t in range(self.length):
            h = decay[:, t] * h + inflow[:, t]
            outputs.append((h * c[:, t, None, :]).sum(-1))
        y = self.leave((torch.stack(outputs, 1) + self.skip * u) * F.silu(gate))
        return F.l1_loss(y, x), y


# ------------------------------------------------------------------------------------------------------ recommendation


class Dlrm(nn.Module):
    """Dense and embedded features, their pairwise products, and a probability."""

    def __init__(self, tables: int = 3, width: int = 8) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(30 + 5 * i, width, mode=mode) for i, mode in zip(range(tables), ("sum", "mean", "sum")))
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, sparse: Tensor, clicks: Tensor) -> tuple[Tensor, Tensor]:
        x = self.bottom(dense)
        features = torch.stack([x] + [bag(sparse[i]) for i, bag in enumerate(self.bags)], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        crossed = products[:, self.pairs[0], self.pairs[1]]
        probability = torch.sigmoid(self.top(torch.cat([x, crossed], 1)).squeeze(1))
        return F.binary_cross_entropy(probability, clicks), probability


# ------------------------------------------------------------------------------------------------------------ the list


def _ids(batch: int, length: int, top: int = 96) -> Tensor:
    return torch.randint(1, top, (batch, length))


def _mask(batch: int, length: int) -> Tensor:
    return (torch.arange(length) < torch.randint(2, length + 1, (batch, 1))).long()


def _diffusion(which: int) -> tuple[Tensor, ...]:
    batch, side = (2, 4) if which == 0 else (3, 6)
    x = torch.randn(batch, 16, side, side)
    return x, torch.randint(0, 1000, (batch,)), torch.randn(batch, 5 + which, 12), torch.randn_like(x)


def _clicks(which: int) -> tuple[Tensor, ...]:
    batch = 8 + 3 * which
    return torch.randn(batch, 5), torch.randint(0, 30, (3, batch, 4)), (torch.rand(batch) > 0.5).float()


MODELS = [
    Model("GPT-2", gpt2, lambda i: (_ids(2 + i, 9 + 4 * i),)),
    Model("Llama", llama, lambda i: (_ids(2 + i, 9 + 4 * i),)),
    Model("BERT", Bert, lambda i: (_ids(2 + i, 9 + 4 * i), _mask(2 + i, 9 + 4 * i))),
    Model("T5", T5, lambda i: (_ids(2 + i, 9 + 4 * i), _ids(2 + i, 6 + i))),
    Model("ViT", ViT, lambda i: (torch.randn(2 + i, 3, 16, 16),)),
    Model("ResNet", ResNet, lambda i: (torch.randn(4 + i, 3, 32 + 16 * i, 32), torch.randint(0, 10, (4 + i,)))),
    Model("U-Net", UNet, lambda i: (torch.randn(2 + i, 1, 16, 16 + 8 * i),)),
    Model("LSTM cells", LstmCells, lambda i: (_ids(3 + i, 6, 20),)),
    Model("LSTM layer", LstmLayer, lambda i: (_ids(3 + i, 4, 20),)),
    Model("MoE", MixtureOfExperts, lambda i: (torch.randn(2 + i, 6 + i, 16),)),
    Model("Mamba", Mamba, lambda i: (torch.randn(2 + i, 7, 8),)),
    Model("DLRM", Dlrm, _clicks),
    Model("Diffusion", DiffusionBlock, _diffusion),
]
