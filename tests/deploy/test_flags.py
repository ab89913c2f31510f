"""Flags that contradict each other, the model or the device."""

from __future__ import annotations

import pytest

from sglang_ascend.deploy import flags, layout, number_formats
from sglang_ascend.errors import ConfigError
from tests.deploy.conftest import GQA_CONFIG

CONTRADICTIONS = [
    ({"page_size": 0}, "--page-size 0 is too small"),
    ({"page_size": 64, "chunked_prefill_size": 100}, "choose 64 or 128"),
    ({"page_size": 64, "chunked_prefill_size": 10}, "choose 64$"),
    ({"context_length": 129}, "--context-length 129 is longer than the model's 128 tokens"),
    ({"context_length": 0}, "--context-length 0 is too small"),
    ({"max_total_tokens": -1}, "--max-total-tokens -1 is too small"),
    ({"max_total_tokens": 15, "page_size": 16}, "holds no whole page"),
    ({"mem_fraction_static": 1.0}, "share between 0 and 1"),
    ({"tokenizer_worker_num": 0}, "--tokenizer-worker-num 0 is too small"),
    ({"detokenizer_worker_num": 0}, "--detokenizer-worker-num 0 is too small"),
    ({"tokenizer_worker_num": 2, "api_key": "k"}, "--api-key does not work"),
    ({"attention_backend": "triton"}, "only attention backend here is ascend_paged"),
    ({"decode_attention_backend": "fa3"}, "--decode-attention-backend fa3 does not run"),
    ({"enable_torch_compile": True}, "--enable-torch-compile is not supported"),
    ({"speculative_num_steps": 2}, "without --speculative-algorithm has no effect"),
    ({"speculative_algorithm": "EAGLE"}, "needs a draft"),
]


@pytest.mark.parametrize(("args", "message"), CONTRADICTIONS)
def test_contradiction(args, message):
    with pytest.raises(ConfigError, match=message):
        flags.check(args, GQA_CONFIG, "reference")


@pytest.mark.parametrize(
    ("args", "message"), [row for row in CONTRADICTIONS if "page_size" not in row[0]]
)
def test_contradiction_on_npu(args, message):
    with pytest.raises(ConfigError, match=message):
        flags.check({"page_size": 128, **args}, GQA_CONFIG, "npu")


@pytest.mark.parametrize("page_size", [1, 3, 16, 256])
@pytest.mark.parametrize(
    ("config", "allowed"), [(GQA_CONFIG, "128, 512"), ({**GQA_CONFIG, "kv_lora_rank": 512}, "128")]
)
def test_page_size_of_the_npu(page_size, config, allowed):
    with pytest.raises(ConfigError, match=rf"choose one of {allowed} \("):
        flags.check({"page_size": page_size}, config, "npu")
    flags.check({"page_size": page_size}, config, "reference")
    flags.check({"page_size": 128}, config, "npu")


def test_longer_context_can_be_allowed(monkeypatch):
    monkeypatch.setenv("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "1")
    flags.check({"context_length": 129}, GQA_CONFIG, "reference")


def test_mtp_layers_are_a_draft():
    config = {**GQA_CONFIG, "num_nextn_predict_layers": 1}
    flags.check({"speculative_algorithm": "EAGLE"}, config, "reference")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"tp_size": 0}, "--tp-size 0 is too small"),
        ({"enable_dp_attention": True}, "no effect with --dp-size 1"),
        ({"enable_dp_attention": True, "dp_size": 2, "tp_size": 3}, "does not divide --tp-size 3"),
        ({"attn_dp_size": 2, "tp_size": 3}, "--attn-dp-size 2 does not divide"),
        ({"attn_dp_size": 2, "tp_size": 2, "dp_size": 2}, "contradict each other"),
        ({"nnodes": 2, "tp_size": 3, "pp_size": 1}, "cannot be spread evenly"),
        ({"nnodes": 2, "tp_size": 2, "node_rank": 2}, "outside 0..1"),
        ({"nnodes": 2, "tp_size": 2}, "needs --dist-init-addr"),
    ],
)
def test_layout_contradiction(args, message):
    with pytest.raises(ConfigError, match=message):
        layout.resolve(args)


def test_both_spellings_of_attention_dp_agree():
    old = layout.resolve({"tp_size": 4, "dp_size": 2, "enable_dp_attention": True})
    new = layout.resolve({"tp_size": 4, "attn_dp_size": 2})
    assert old == new == layout.Layout(tp=4, attention_dp=2, replicas=1)
    assert new.attention_tp == 2


@pytest.mark.parametrize(
    ("args", "ep", "message"),
    [
        ({"tp_size": 4}, 1, "6 attention heads cannot be split over 4 ranks"),
        ({"tp_size": 2}, 2, "needs a model with experts"),
    ],
)
def test_model_cannot_be_split(args, ep, message):
    with pytest.raises(ConfigError, match=message):
        layout.check_model(layout.resolve(args), GQA_CONFIG, ep)


def test_model_can_be_split():
    layout.check_model(layout.resolve({"tp_size": 6}), GQA_CONFIG, 1)
    layout.check_model(layout.resolve({"tp_size": 4, "attn_dp_size": 2}), GQA_CONFIG, 1)
    moe = {**GQA_CONFIG, "n_routed_experts": 16}
    layout.check_model(layout.resolve({"tp_size": 2}), moe, 2)


@pytest.mark.parametrize(
    ("dtype", "device", "own", "expected"),
    [
        ("auto", "reference", "bfloat16", "float32"),
        ("auto", "npu", "bfloat16", "bfloat16"),
        ("auto", "npu", "float32", "float16"),
        ("half", "reference", "float32", "half"),
    ],
)
def test_dtype(dtype, device, own, expected):
    assert number_formats.resolve_dtype({"dtype": own}, dtype, device) == expected


def test_unsupported_formats(tmp_path):
    with pytest.raises(ConfigError, match="--dtype 'int4' is not supported on reference"):
        number_formats.resolve_dtype({}, "int4", "reference")
    with pytest.raises(ConfigError, match="config.json asks for dtype 'float8_e4m3fn'"):
        number_formats.resolve_dtype({"dtype": "float8_e4m3fn"}, "auto", "npu")
    with pytest.raises(ConfigError, match="--kv-cache-dtype 'fp8_e5m2'"):
        number_formats.check_kv_cache_dtype("fp8_e5m2", "reference")
    with pytest.raises(ConfigError, match="--quantization 'fp8' is not supported on npu"):
        number_formats.check_quantization(tmp_path, {}, "fp8", "bfloat16", "npu")
    with pytest.raises(ConfigError, match="the checkpoint's quantization 'awq'"):
        config = {"quantization_config": {"quant_method": "awq"}}
        number_formats.check_quantization(tmp_path, config, None, "float32", "reference")
