"""What the NPU operators do not take is refused by us, with the bound. No NPU is needed."""

import pytest
import torch

from sglang_ascend.ops import (
    gate_topk_grouped_sigmoid,
    gate_topk_softmax,
    grouped_matmul,
    kv_rmsnorm_rope_write,
    kv_write,
    load_all,
    mla_kv_write,
    mla_prefill_expanded,
    mla_prolog,
    moe_permute,
    paged_gqa_attention,
    paged_mla_attention,
    rope,
)
from sglang_ascend.ops.spec import OperatorError

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32

# Operator module, good arguments, then (changed arguments, message) that are refused.
CASES = [
    (rope, {"query_heads": 128, "key_heads": 1, "rotary": 64, "split_halves": True}, [
        ({"rotary": 32}, "split_halves rotary_dim is 32, allowed is one of 64"),
        ({"query_heads": 1000}, "heads is 1000, allowed is at most 999"),
        ({"rotary": 896, "split_halves": False}, "rotary_dim is 896, allowed is at most 894"),
    ]),
    (kv_write, {"key_dim": 64, "value_dim": 128, "element_bytes": 2}, [
        ({"key_dim": 72}, "row_bytes is 144, allowed is a multiple of 32"),
        ({"value_dim": 8}, "row_bytes is 16, allowed is a multiple of 32"),
    ]),
    (mla_kv_write, {"kv_lora": 512, "rotary": 64, "element_bytes": 2}, [
        ({"rotary": 4}, "row_bytes is 8, allowed is a multiple of 32"),
    ]),
    (kv_rmsnorm_rope_write, {"dtype": F16, "kv_lora": 512, "rotary": 64}, [
        ({"dtype": F32}, "dtype is torch.float32, allowed is one of torch.bfloat16, torch.float16"),
        ({"kv_lora": 256}, "kv_lora is 256, allowed is one of 512"),
        ({"rotary": 32}, "rotary_dim is 32, allowed is one of 64"),
    ]),
    (mla_prolog, {
        "dtype": BF16, "hidden": 7168, "q_lora": 1536, "heads": 128, "kv_lora": 512, "nope": 128,
        "rotary": 64, "page": 128,
    }, [
        ({"dtype": F16}, "dtype is torch.float16, allowed is one of torch.bfloat16"),
        ({"hidden": 256}, "hidden is 256, allowed is one of 6144, 7168, 7680"),
        ({"q_lora": 128}, "q_lora is 128, allowed is one of 1536"),
        ({"heads": 12}, "heads is 12, allowed is one of 1, 2, 4, 8, 16, 32, 64, 128"),
        ({"kv_lora": 256}, "kv_lora is 256, allowed is one of 512"),
        ({"nope": 32}, "nope_dim is 32, allowed is one of 128"),
        ({"rotary": 32}, "rotary_dim is 32, allowed is one of 64"),
        ({"page": 64}, "page_size is 64, allowed is one of 16, 128"),
    ]),
    (paged_gqa_attention, {
        "dtype": BF16, "page": 128, "heads": 9, "kv_heads": 3, "key_dim": 64, "value_dim": 64,
    }, [
        ({"dtype": F32}, "dtype is torch.float32, allowed is one of torch.bfloat16, torch.float16"),
        ({"page": 1}, "page_size is 1, allowed is one of 128, 512"),
        ({"page": 64}, "page_size is 64, allowed is one of 128, 512"),
        ({"key_dim": 72}, "head_dim is 72, allowed is a multiple of 16"),
        ({"key_dim": 528}, "largest head_dim is 528, allowed is at most 512"),
        ({"heads": 257, "kv_heads": 257}, "heads is 257, allowed is at most 256"),
        ({"heads": 65, "kv_heads": 1}, "queries per kv head is 65, allowed is at most 64"),
        ({"value_dim": 32}, "value_dim is 32, allowed is key_dim 64"),
    ]),
    (paged_mla_attention, {
        "dtype": F16, "page": 128, "heads": 8, "kv_lora": 512, "rotary": 64, "longest_query": 16,
    }, [
        ({"dtype": F32}, "dtype is torch.float32, allowed is one of torch.bfloat16, torch.float16"),
        ({"page": 64}, "page_size is 64, allowed is one of 128"),
        ({"heads": 9}, "heads is 9, allowed is one of 1, 2, 4, 8, 16, 32, 64, 128"),
        ({"kv_lora": 128}, "kv_lora is 128, allowed is one of 512"),
        ({"rotary": 32}, "rotary_dim is 32, allowed is one of 64"),
        ({"longest_query": 17}, "query_len is 17, allowed is at most 16"),
    ]),
    (mla_prefill_expanded, {"dtype": BF16, "nope": 128, "rotary": 64, "value_dim": 128}, [
        ({"dtype": F16}, "dtype is torch.float16, allowed is one of torch.bfloat16"),
        ({"nope": 129}, "nope_dim is 129, allowed is at most 128"),
        ({"rotary": 32}, "rotary_dim is 32, allowed is one of 64"),
        ({"value_dim": 192}, "value_dim is 192, allowed is at most 128"),
    ]),
    (gate_topk_grouped_sigmoid, {"experts": 256, "n_group": 8}, [
        ({"experts": 2049, "n_group": 1}, "experts is 2049, allowed is at most 2048"),
        ({"n_group": 128}, "experts, each group rounded up to 32 is 4096, allowed is at most 2048"),
        ({"experts": 16, "n_group": 8}, "experts per group is 2, allowed is more than 2"),
    ]),
    (grouped_matmul, {"experts": 256, "rows_in": 7168, "rows_out": 4096}, [
        ({"experts": 1025}, "experts is 1025, allowed is at most 1024"),
        ({"rows_in": 65536}, "row elements is 65536, allowed is at most 65535"),
        ({"rows_out": 70000}, "row elements is 70000, allowed is at most 65535"),
    ]),
]  # fmt: skip


def _name(module) -> str:
    return module.__name__.rsplit(".", 1)[1]


@pytest.mark.parametrize(
    ("module", "good"), [case[:2] for case in CASES], ids=lambda x: getattr(x, "__name__", "")
)
def test_good_arguments_pass(module, good):
    module.check_npu_limits(**good)


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        pytest.param(module, {**good, **changes}, message, id=f"{_name(module)}-{message}")
        for module, good, refused in CASES
        for changes, message in refused
    ],
)
def test_refused(module, arguments, message):
    with pytest.raises(OperatorError) as error:
        module.check_npu_limits(**arguments)
    assert str(error.value).startswith(f"{_name(module)} on npu: {message} (")


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (
            gate_topk_softmax,
            (torch.zeros(1, 2048), 1025, True),
            "top_k is 1025, allowed is at most 1024",
        ),
        (
            moe_permute,
            (torch.zeros(1, 2), torch.zeros(1, 1, dtype=torch.int32), 0, 10240),
            "expert_end is 10240, allowed is at most 10239",
        ),
        (
            paged_mla_attention,
            (
                torch.zeros(1, 8, 512, dtype=BF16),
                torch.zeros(1, 8, 64, dtype=BF16),
                torch.zeros(2, 64, 1, 512, dtype=BF16),
                torch.zeros(2, 64, 1, 64, dtype=BF16),
                torch.zeros(1, 1, dtype=torch.int32),
                [1],
                [1],
                1.0,
            ),
            "page_size is 64, allowed is one of 128",
        ),
    ],
)
def test_the_npu_call_checks_first(module, arguments, message):
    """No torch_npu is loaded here: anything but our own error would be an AttributeError."""
    with pytest.raises(OperatorError, match=message):
        module.npu(*arguments)


def test_strided_caches_are_refused():
    """The MLA halves of one fused buffer are fine on the reference device, not on the NPU."""
    fused = torch.zeros(2, 128, 1, 576, dtype=BF16)
    with pytest.raises(OperatorError) as error:
        mla_kv_write.npu(
            torch.zeros(1, 512, dtype=BF16),
            torch.zeros(1, 64, dtype=BF16),
            fused[..., :512],
            fused[..., 512:],
            torch.tensor([0]),
        )
    assert str(error.value) == (
        "mla_kv_write on npu: latent_cache must be contiguous, got shape [2, 128, 1, 512] with"
        " strides [73728, 576, 576, 1]"
    )


def test_every_limit_is_exercised():
    """A limit that no case violates would be a limit that nobody checks."""
    messages = " ".join(message for _, _, refused in CASES for _, message in refused)
    elsewhere = {"gate_topk_softmax", "moe_permute", "sampling_filter"}
    for name, operator in load_all().items():
        if name not in elsewhere:
            for quantity in operator.spec.npu_limits:
                assert f"{quantity} is" in messages, (name, quantity)
