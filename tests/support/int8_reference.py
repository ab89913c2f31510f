"""transformers' model with its projections in INT8, as the yardstick of ``ascend_w8a8``.

Written from the definition of the scheme, with nothing of the package in it: products of integers
are summed in int32.
"""

from __future__ import annotations

import torch
from torch import nn

from tests.support.reference import Reference

#: MLA's up-projection of keys and values is folded into query and output, in float.
FLOAT = ("kv_b_proj",)
#: A value near a half rounds to either side after sums in another order, which moves one product
#: by a step of its scale.
TIE = 0.05


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [rows, n] float32 -> integers [rows, n] int32 in -127..127, scale [rows, 1] float32."""
    scale = x.abs().max(dim=1, keepdim=True).values / 127
    steps = torch.where(scale > 0, x / scale, torch.zeros_like(x))
    return torch.round(steps).clamp(-127, 127).int(), scale


def integer_linear(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x [..., in] float32, weight [out, in] int32, scale [out, 1] -> [..., out] float32."""
    q, x_scale = quantise_rows(x.reshape(-1, x.shape[-1]))
    y = (q @ weight.t()).float() * x_scale * scale.t()
    return y.view(*x.shape[:-1], len(weight))


class Int8Linear(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        assert linear.bias is None
        self.integers, self.scale = quantise_rows(linear.weight.data)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return integer_linear(x, self.integers, self.scale)


class Int8Experts(nn.Module):
    """In place of transformers' ``DeepseekV3Experts``."""

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        self.gate_up = [quantise_rows(weight) for weight in experts.gate_up_proj.data]
        self.down = [quantise_rows(weight) for weight in experts.down_proj.data]

    def forward(self, hidden_states, top_k_index, top_k_weights) -> torch.Tensor:
        out = torch.zeros_like(hidden_states)
        for expert, (gate_up, down) in enumerate(zip(self.gate_up, self.down)):
            token, place = torch.where(top_k_index == expert)
            gate, up = integer_linear(hidden_states[token], *gate_up).chunk(2, dim=-1)
            rows = integer_linear(nn.functional.silu(gate) * up, *down)
            out.index_add_(0, token, rows * top_k_weights[token, place, None])
        return out


def to_int8(module: nn.Module) -> None:
    """Replace every projection below ``module``; head, router and embedding stay."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and "_proj" in name and name not in FLOAT:
            setattr(module, name, Int8Linear(child))
        elif name == "experts":
            module.experts = Int8Experts(child)
        else:
            to_int8(child)


class Int8Reference(Reference):
    """Greedy continuations of a model in INT8."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        to_int8(self.model)
