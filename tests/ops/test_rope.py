"""Rotary embeddings and their tables against transformers and SGLang."""

import pytest
import torch
from transformers import DeepseekV3Config, LlamaConfig
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.llama import modeling_llama as llama

from sglang_ascend.ops.rope import rope
from sglang_ascend.ops.rope_tables import plain_cos_sin, yarn_cos_sin, yarn_softmax_scale

YARN = {
    "factor": 40,
    "original_max_positions": 128,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


def _transformers_tables(module, positions):
    cos, sin = module(torch.zeros(1), positions[None])
    half = cos.shape[-1] // 2
    return torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1)


def _yarn_config(**changes) -> DeepseekV3Config:
    values = {**YARN, **changes}
    parameters = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": values["factor"],
        "original_max_position_embeddings": values["original_max_positions"],
        "beta_fast": values["beta_fast"],
        "beta_slow": values["beta_slow"],
    }
    for name in ("mscale", "mscale_all_dim"):
        if values[name] is not None:
            parameters[name] = values[name]
    return DeepseekV3Config(
        rope_parameters=parameters, max_position_embeddings=5120, qk_rope_head_dim=64
    )


@pytest.mark.parametrize("theta", [10000.0, 100000.0])
def test_plain_tables(theta):
    config = LlamaConfig(
        hidden_size=576,
        num_attention_heads=9,
        head_dim=64,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    module = llama.LlamaRotaryEmbedding(config)
    expected = _transformers_tables(module, torch.arange(3000))
    assert torch.equal(plain_cos_sin(64, 3000, theta), expected)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mscale": 0.707, "mscale_all_dim": 1.0},
        {"mscale": None, "mscale_all_dim": None},
        {"factor": 1.0},
        {"original_max_positions": 4096},
        {"beta_fast": 1, "beta_slow": 1},
    ],
)
def test_yarn_tables(changes):
    module = deepseek.DeepseekV3RotaryEmbedding(_yarn_config(**changes))
    expected = _transformers_tables(module, torch.arange(1000))
    actual = yarn_cos_sin(64, 1000, **{**YARN, **changes})
    # The blend of two frequencies is summed in another order: one unit in the last place of the
    # frequency, times 1000 positions.
    torch.testing.assert_close(actual, expected, rtol=0, atol=1000 * 2**-23)


@pytest.mark.parametrize("mscale_all_dim", [0.0, 1.0, 0.707])
def test_yarn_softmax_scale(mscale_all_dim):
    config = _yarn_config(mscale_all_dim=mscale_all_dim)
    expected = deepseek.yarn_apply_mscale(config.rope_parameters, 192**-0.5)
    assert yarn_softmax_scale(192, 40, mscale_all_dim) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rotary_dim", [0, 7, -2])
def test_tables_refuse_odd_sizes(rotary_dim):
    with pytest.raises(ValueError, match=f"positive even number, got {rotary_dim}"):
        plain_cos_sin(rotary_dim, 10)


def _inputs(tokens, heads, kv_heads, rotary, dtype=torch.float32):
    torch.manual_seed(0)
    # Slices of a fused projection: not contiguous.
    fused = torch.randn(tokens, heads + kv_heads, rotary + 3, dtype=dtype)
    return fused[:, :heads, 3:], fused[:, heads:, 3:]


@pytest.mark.parametrize("tokens", [0, 1, 6])
@pytest.mark.parametrize("rotary", [2, 64])
def test_half_layout_is_transformers(tokens, rotary):
    query, key = _inputs(tokens, 9, 3, rotary)
    positions = torch.randint(0, 100, (tokens,))
    tables = plain_cos_sin(rotary, 100)
    cos, sin = (torch.cat((t, t), -1) for t in tables[positions].chunk(2, -1))
    expected = llama.apply_rotary_pos_emb(query, key, cos, sin)
    for actual, value in zip(rope(query, key, tables, positions, False), expected):
        assert torch.equal(actual, value)


@pytest.mark.parametrize("tokens", [0, 6])
def test_split_halves_is_transformers_interleave(tokens):
    query, key = _inputs(tokens, 8, 1, 64)
    positions = torch.randint(0, 100, (tokens,))
    tables = plain_cos_sin(64, 100)
    cos, sin = (torch.cat((t, t), -1) for t in tables[positions].chunk(2, -1))
    expected = deepseek.apply_rotary_pos_emb_interleave(query, key, cos, sin)
    for actual, value in zip(rope(query, key, tables, positions, True, True), expected):
        assert torch.equal(actual, value)


def test_interleaved_layout_rotates_neighbours():
    query, key = _inputs(5, 2, 1, 6)
    positions = torch.tensor([3, 0, 99, 3, 1])
    tables = plain_cos_sin(6, 100)
    rotated, rotated_key = rope(query, key, tables, positions, True)
    for actual, x in ((rotated, query), (rotated_key, key)):
        for token, position in enumerate(positions):
            for pair in range(3):
                angle = tables[position, pair], tables[position, pair + 3]
                turn = torch.complex(*angle)
                turned = torch.complex(x[token, :, 2 * pair], x[token, :, 2 * pair + 1]) * turn
                got = torch.complex(actual[token, :, 2 * pair], actual[token, :, 2 * pair + 1])
                torch.testing.assert_close(got, turned, rtol=1e-6, atol=1e-6)


def test_both_layouts_give_the_same_scores():
    query, key = _inputs(5, 4, 4, 64)
    positions = torch.arange(5)
    tables = plain_cos_sin(64, 100)
    scores = [
        (q * k).sum(-1)
        for q, k in (rope(query, key, tables, positions, True, split) for split in (False, True))
    ]
    # The same products, summed in another order.
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_inputs_are_rotated_in_float32(dtype):
    query, key = _inputs(4, 2, 1, 64, dtype)
    positions = torch.arange(4)
    tables = plain_cos_sin(64, 100)
    exact = rope(query.float(), key.float(), tables, positions, False)
    for actual, value in zip(rope(query, key, tables, positions, False), exact):
        assert torch.equal(actual, value.to(dtype))


def test_position_behind_the_tables_raises():
    query, key = _inputs(1, 1, 1, 4)
    with pytest.raises((IndexError, RuntimeError)):
        rope(query, key, plain_cos_sin(4, 10), torch.tensor([10]), False)
