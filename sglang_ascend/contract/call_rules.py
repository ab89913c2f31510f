"""What torch_npu's operators document and its shape functions do not check.

Modes are strings and integers: an operator that is called with a string has to be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LAYOUTS = ("BSH", "BSND", "BNSD", "TND", "BNSD_BSND", "TND_NTD", "NTD_TND", "BSND_NBSD")

#: By operator and parameter; "*" stands for every operator. Sources: the operators' pages in the
#: documentation of torch_npu 2.13.0 (op-plugin) and, for attention, aclnnFusedInferAttentionScore.
ALLOWED: Mapping[tuple[str, str], tuple[Any, ...]] = {
    ("npu::npu_fused_infer_attention_score", "input_layout"): _LAYOUTS,
    ("npu::npu_fused_infer_attention_score", "sparse_mode"): (0, 1, 2, 3, 4),
    ("npu::npu_scatter_pa_kv_cache", "cache_mode"): ("Norm", "PA_NZ"),
    ("npu::npu_kv_rmsnorm_rope_cache", "cache_mode"): ("Norm", "PA", "PA_BNSD", "PA_NZ"),
    ("npu::npu_mla_prolog_v3", "cache_mode"): ("PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ"),
    ("npu::npu_rotary_mul", "rotary_mode"): ("half", "interleave", "quarter", "interleave-half"),
    ("npu::npu_grouped_matmul", "split_item"): (0, 1, 2, 3),
    ("npu::npu_grouped_matmul", "group_type"): (-1, 0, 2),
    ("npu::npu_grouped_matmul", "group_list_type"): (0, 1, 2),
    ("npu::npu_moe_init_routing_v2", "drop_pad_mode"): (0, 1),
    ("npu::npu_moe_init_routing_v2", "quant_mode"): (-1, 0, 1),
    ("npu::npu_moe_init_routing_v2", "row_idx_type"): (0, 1),
    ("npu::npu_moe_init_routing_v2", "expert_tokens_num_type"): (0, 1, 2),
    ("npu::npu_moe_finalize_routing", "drop_pad_mode"): (0, 1, 2, 3),
    ("npu::npu_moe_gating_top_k", "norm_type"): (0, 1),
    ("npu::npu_moe_gating_top_k", "group_select_mode"): (0, 1),
    ("npu::npu_moe_gating_top_k", "renorm"): (0,),
    ("npu::npu_moe_gating_top_k_softmax_v2", "renorm"): (0, 1),
}
#: Strings that name something of this deployment rather than a mode.
NAMES = ("group_ep", "group_tp", "comm_alg")


def problems(operator: str, arguments: Mapping[str, Any]) -> list[str]:
    """What is wrong with a call; arguments by the names of the operator's schema."""
    found = []
    for name, value in arguments.items():
        allowed = ALLOWED.get((operator, name))
        if allowed is not None and value not in allowed:
            found.append(f"{operator}: {name} must be one of {allowed}, got {value!r}")
        if allowed is None and isinstance(value, str) and name not in NAMES:
            found.append(f"{operator}: {name}={value!r} is a mode that call_rules.py lacks")
    rule = _SHAPES.get(operator)
    return found if rule is None else [*found, *(f"{operator}: {line}" for line in rule(arguments))]


def _grouped_matmul(arguments: Mapping[str, Any]) -> Iterator[str]:
    groups = arguments["group_list"].shape[0]
    for x, weight in zip(arguments["x"], arguments["weight"]):
        if x.shape[-1] != weight.shape[-2]:
            yield f"x has {x.shape[-1]} columns, weight {weight.shape[-2]} rows"
        if groups != weight.shape[0]:
            yield f"group_list has {groups} entries for {weight.shape[0]} experts"


def _distribute(arguments: Mapping[str, Any]) -> Iterator[str]:
    rank, ranks = arguments["ep_rank_id"], arguments["ep_world_size"]
    if not 0 <= rank < ranks:
        yield f"ep_rank_id must be in 0..{ranks - 1}, got {rank}"
    if not arguments["group_ep"]:
        yield "group_ep must name a communicator"


_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "npu::npu_grouped_matmul": _grouped_matmul,
    "npu::npu_moe_distribute_dispatch_v2": _distribute,
    "npu::npu_moe_distribute_combine_v2": _distribute,
}
