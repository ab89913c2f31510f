"""NPU calls with one fault each, made as the contract check makes them; run as a process.

Prints what the check says of each, by name of the fault, as JSON.
"""

from __future__ import annotations

import json

import torch
import torch.nn.functional as F

from sglang_ascend.contract import npu_side
from sglang_ascend.contract.cases import Case
from sglang_ascend.ops import load_all
from sglang_ascend.ops.spec import Operator

NPU_OPS = torch.ops.npu
OPERATORS = load_all()


def right(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, weight, eps)[0]


def unknown_argument(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, weight, eps, weight_offset=1)[0]


def missing_argument(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x)[0]


def none_for_a_tensor(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, None, eps)[0]


def unknown_operator(x, weight, eps):
    return NPU_OPS.npu_root_mean_square_norm(x, weight, eps)[0]


def all_results(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, weight, eps)


def wrong_dtype(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, weight, eps)[0].float()


def wrong_shape(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, weight, eps)[0].unsqueeze(0)


def wrong_strides(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, weight, eps)[0].t().contiguous().t()


def gives_back_an_argument(x, weight, eps):
    NPU_OPS.npu_rms_norm(x, weight, eps)
    return x


def left_on_the_host(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, torch.ones(weight.shape, dtype=weight.dtype), eps)[0]


def reads_a_value(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x, weight, eps)[0] * float(weight.sum())


def reads_a_shape_from_values(x, weight, eps):
    return NPU_OPS.npu_rms_norm(x[x[:, 0].nonzero().squeeze(1)], weight, eps)[0]


def writes_an_argument(x, weight, eps):
    x.add_(1)
    return NPU_OPS.npu_rms_norm(x, weight, eps)[0]


def _attention(**changes):
    def npu(query, key_cache, value_cache, block_table, query_lens, kv_lens, scale, causal=True):
        page, heads, dim = key_cache.shape[1:]
        arguments = {
            "num_heads": query.shape[1],
            "num_key_value_heads": heads,
            "input_layout": "BSND",
            "block_table": block_table,
            "block_size": page,
            "scale": scale,
            "actual_seq_lengths_kv": list(kv_lens),
            **changes,
        }
        key, value = (cache.view(-1, page, heads * dim) for cache in (key_cache, value_cache))
        rows = query.unsqueeze(1)
        return NPU_OPS.npu_fused_infer_attention_score(rows, key, value, **arguments)[0].squeeze(1)

    return npu


def _experts(x, weights, tokens_per_expert):
    lists = {"group_list": tokens_per_expert, "split_item": 3, "group_type": 0}
    return NPU_OPS.npu_grouped_matmul([x], [F.pad(weights, (0, 0, 0, 16))], **lists)[0]


def _matmul_list_type(x, weights, tokens_per_expert):
    lists = {"group_list": tokens_per_expert, "split_item": 3, "group_type": 0}
    return NPU_OPS.npu_grouped_matmul([x], [weights], **lists, group_list_type=7)[0]


def _copied_cache(key, value, key_cache, value_cache, slots):
    NPU_OPS.npu_scatter_pa_kv_cache(
        key, value, key_cache.clone(), value_cache, slots, cache_mode="Norm"
    )


def _undocumented_mode(key, value, key_cache, value_cache, slots):
    NPU_OPS.npu_scatter_pa_kv_cache(key, value, key_cache, value_cache, slots, cache_mode="PA_ND")


def quant_k_mismatch(x, weight, eps):
    q, scale = NPU_OPS.npu_dynamic_quant(x)
    w = weight.new_zeros(q.shape[1] - 8, q.shape[1], dtype=torch.int8)
    return NPU_OPS.npu_quant_matmul(
        q, w, weight.float(), pertoken_scale=scale, output_dtype=x.dtype
    )


def _in_group(name, rank):
    def npu(expert_out, ids, weights, state, ep, token_counts, where=None):
        places = (state.assist_info, state.ep_counts, weights)
        group = (name, ep.group.size, rank, ep.slots)
        return NPU_OPS.npu_moe_distribute_combine_v2(expert_out, state.ids, *places, *group)

    return npu


FAULTS = {
    "rms_norm": (
        right,
        unknown_argument,
        missing_argument,
        none_for_a_tensor,
        unknown_operator,
        all_results,
        wrong_dtype,
        wrong_shape,
        wrong_strides,
        gives_back_an_argument,
        left_on_the_host,
        reads_a_value,
        reads_a_shape_from_values,
        writes_an_argument,
        quant_k_mismatch,
    ),
    "paged_gqa_attention": {
        "right_attention": _attention(),
        "unknown_layout": _attention(input_layout="XYZ"),
        "unknown_mask_mode": _attention(sparse_mode=11),
        "lengths_as_a_tensor": _attention(actual_seq_lengths_kv=torch.ones(4)),
        "old_keyword": _attention(num_kv_heads=3),
    },
    "grouped_matmul": {"k_mismatch": _experts, "unknown_list_type": _matmul_list_type},
    "moe_distribute_combine": {
        "rank_outside_the_group": _in_group("group", 32),
        "no_group": _in_group("", 0),
    },
    "kv_write": {"copied_cache": _copied_cache, "undocumented_mode": _undocumented_mode},
}


def _run(name: str, npu, mode) -> dict:
    operator = OPERATORS[name]
    own = operator.contract[0]
    faulty = Operator(operator.spec, operator.reference, npu, operator.contract)
    case = Case(name, own.label, "operator file", lambda device: own.build(device, own.dtype))
    return npu_side.run_case(case, faulty, mode)


def main() -> None:
    mode = npu_side.fake_mode()
    found = {}
    for name, faults in FAULTS.items():
        named = faults if isinstance(faults, dict) else {f.__name__: f for f in faults}
        found.update({fault: _run(name, npu, mode) for fault, npu in named.items()})
    # On real tensors, the stand-in keeps what it is given and refuses to compute.
    kept = torch.arange(6.0).to("npu")
    found["kept"] = kept.cpu().tolist()
    try:
        found["computed"] = (kept + 1).cpu().tolist()
    except RuntimeError as error:
        found["computed"] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
