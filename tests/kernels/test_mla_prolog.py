"""The pieces of the MLA prolog, run natively; the choice between them and the whole operator."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sglang_ascend.kernel_proof.comparison import assert_close
from sglang_ascend.kernel_proof.native_run import native_backend, run_native
from sglang_ascend.kernels.kv_rmsnorm_rope_write import kv_rmsnorm_rope_write_launch
from sglang_ascend.kernels.launching import Backend
from sglang_ascend.kernels.mla_prolog import PrologCall, choose_path, mla_prolog_launch
from sglang_ascend.kernels.rope_halves import rope_halves_launch
from sglang_ascend.ops.kv_rmsnorm_rope_write import reference as write
from sglang_ascend.ops.mla_prolog import reference as prolog
from sglang_ascend.ops.rope import rope
from sglang_ascend.ops.rope_tables import plain_cos_sin
from sglang_ascend.ops.spec import OperatorError
from tests.kernels.recording import Recorder

ON = native_backend("910B")
BF16 = torch.bfloat16
NAN = float("nan")


def caches(blocks: int, page: int) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.full((blocks, page, 1, 512), NAN, dtype=BF16),
        torch.full((blocks, page, 1, 64), NAN, dtype=BF16),
    )


@pytest.mark.parametrize("page", [128, 16, 1])
def test_cache_write(page):
    torch.manual_seed(0)
    blocks = 256 // page
    joint = torch.randn(9, 1536 + 576, dtype=BF16) * 3  # both down projections in one product
    kv, weight = joint[:, 1536:], torch.randn(512, dtype=BF16)
    tables, positions = plain_cos_sin(64, 300), torch.randint(0, 300, (9,))
    # Ends of pages and of the cache; skipped; behind the cache.
    slots = torch.tensor([255, 0, -1, 127, 128, 15, -(2**40), 256, 2**33])
    got, want = caches(blocks, page), caches(blocks, page)
    kv_rmsnorm_rope_write_launch(kv, weight, tables, positions, *got, slots, 1e-6, ON)
    inside = slots.where(slots < 256, -1)
    write(kv, weight, tables, positions, *want, inside, 1e-6)
    for mine, theirs in zip(got, want):
        assert_close("kv_rmsnorm_rope_write", "bf16", mine, theirs)
    assert int(got[0].isfinite().sum()) == 5 * 512


@pytest.mark.parametrize("bad", [float("inf"), NAN])
def test_a_token_that_is_not_finite_spoils_its_own_slot_only(bad):
    torch.manual_seed(0)
    kv = torch.randn(3, 576, dtype=BF16)
    kv[1, 100] = kv[1, 530] = bad
    cache = caches(1, 16)
    arguments = torch.ones(512, dtype=BF16), plain_cos_sin(64, 8), torch.tensor([1, 2, 3])
    kv_rmsnorm_rope_write_launch(kv, *arguments, *cache, torch.tensor([4, 5, 6]), 1e-6, ON)
    assert bool(cache[0][0, [4, 6]].isfinite().all()) and bool(cache[1][0, [4, 6]].isfinite().all())
    assert not bool(cache[0][0, 5].isfinite().all()) and not bool(cache[1][0, 5].isfinite().all())


@pytest.mark.parametrize(("tokens", "heads"), [(5, 128), (50, 16), (3, 20), (1, 1), (0, 16)])
def test_rope_of_the_queries(tokens, heads):
    torch.manual_seed(0)
    query = torch.randn(tokens, heads, 192, dtype=BF16)[..., 128:]
    tables, positions = plain_cos_sin(64, 4096), torch.randint(0, 4096, (tokens,))
    out = rope_halves_launch(query, tables, positions, ON)
    want, _ = rope(query, query, tables, positions, True, True)
    assert_close("rope_halves", "bf16", out, want)


def prolog_arguments(tokens: int, hidden: int, q_lora: int, heads: int, nope: int, page: int):
    torch.manual_seed(0)

    def weight(*shape):
        return (torch.randn(*shape) / shape[-2] ** 0.5).to(BF16)

    return {
        "x": torch.randn(tokens, hidden, dtype=BF16),
        "w_dq": weight(hidden, q_lora),
        "w_uq_qr": weight(q_lora, heads * (nope + 64)),
        "w_uk": weight(heads, nope, 512),
        "w_dkv_kr": weight(hidden, 576),
        "q_norm": torch.randn(q_lora, dtype=BF16),
        "kv_norm": torch.randn(512, dtype=BF16),
        "cos_sin": plain_cos_sin(64, 64),
        "positions": torch.arange(tokens) * 3,
        **dict(zip(("latent_cache", "rope_cache"), caches(2, page))),
        "slots": torch.arange(tokens) * 5 % (2 * page),
        "eps": 1e-6,
    }


def run(form, arguments, **options):
    copies = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
    results = form(**copies, **options)
    return *results, copies["latent_cache"], copies["rope_cache"]


def test_the_pieces_are_the_operator():
    arguments = prolog_arguments(6, 256, 128, 8, 32, 64)
    recorder = Recorder()
    got = run(mla_prolog_launch, arguments, on=recorder.backend)
    assert recorder.ran == [
        "kv_rmsnorm_rope_write/latent512_rotary64",
        "rope_halves/heads16_rotary64",
    ]
    for mine, theirs in zip(got, run(prolog, arguments)):
        torch.testing.assert_close(mine, theirs, rtol=2**-6, atol=2**-6, equal_nan=True)


def test_padding_tokens_and_an_int8_up_projection():
    arguments = prolog_arguments(6, 256, 128, 8, 32, 64)
    arguments["slots"][[2, 5]] = -1
    full = arguments["w_uq_qr"].float()
    scale = full.abs().amax(0) / 127
    arguments["w_uq_qr"] = (full / scale).round().to(torch.int8)
    recorder = Recorder()
    latent, rotated, *written = run(
        mla_prolog_launch,
        arguments,
        w_uq_qr_scale=scale,
        padding_slots=True,
        on=recorder.backend,
    )
    assert [name.partition("/")[0] for name in recorder.ran] == [
        "rms_norm_quant",
        "quant_grouped_matmul",
        "kv_rmsnorm_rope_write",
        "rope_halves",
    ]
    # Against the same weights without quantisation of the activations: 127 steps for the largest.
    arguments["w_uq_qr"] = (arguments["w_uq_qr"].float() * scale).to(BF16)
    arguments["slots"][[2, 5]] = 99  # the operator wants real slots
    want_latent, want_rotated, *want_written = run(prolog, arguments)
    for mine, theirs in ((latent, want_latent), (rotated, want_rotated)):
        error = (mine.float() - theirs.float()).norm() / theirs.float().norm()
        assert float(error) < 2**-6
    want_written = [cache.view(128, -1)[:99] for cache in want_written]
    for mine, theirs in zip(written, want_written):
        assert_close("kv_rmsnorm_rope_write", "bf16", mine.view(128, -1)[:99], theirs)
        assert bool(mine.view(128, -1)[99:].isnan().all())


SERVED = PrologCall("npu", BF16, 7168, 1536, 128, 512, 128, 64, 128, False, False, torch.float32)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, "whole"),
        ({"heads": 16, "tables_dtype": BF16}, "whole"),
        ({"padding_slots": True}, "pieces"),
        ({"int8_up_projection": True}, "pieces"),
        ({"page_size": 64}, "pieces"),
        ({"hidden": 256, "q_lora": 128, "heads": 8, "nope_dim": 32}, "pieces"),
        ({"device": "cpu"}, "pieces"),
    ],
)
def test_the_choice(changes, path):
    assert choose_path(replace(SERVED, **changes)) == path


def test_a_torch_npu_without_the_whole_operator_is_named_with_the_command_that_helps(monkeypatch):
    """No torch_npu is loaded here: what an npu would be asked for is not there."""
    # torch remembers an operator that another test defined for its own duration.
    monkeypatch.delattr(torch.ops.npu, "npu_mla_prolog_v3", raising=False)
    arguments = prolog_arguments(1, 6144, 1536, 1, 128, 128)
    with pytest.raises(OperatorError) as error:
        mla_prolog_launch(**arguments, on=Backend("npu", "910B", run_native))
    message = str(error.value)
    assert message.startswith("mla_prolog: npu_mla_prolog_v3 is missing, torch_npu ")
    assert message.endswith("run `pip install torch==2.13.0 torch_npu==2.13.0`")


def test_neither_form_fits():
    with pytest.raises(OperatorError) as error:
        choose_path(replace(SERVED, kv_lora=256, padding_slots=True))
    message = str(error.value)
    assert message.startswith("mla_prolog: required device=npu, dtype=torch.bfloat16, hidden=7168")
    assert "whole supports device one of npu, dtype one of torch.bfloat16, hidden one of" in message
    assert "pieces supports dtype one of torch.bfloat16, q_lora at most 8192" in message
    assert message.endswith(
        "missing: whole lacks kv_lora=256, padding_slots=True; pieces lacks kv_lora=256; device npu"
    )


def test_outside_the_declared_features():
    query, tables = torch.zeros(2, 4, 64, dtype=BF16), torch.zeros(8, 64)
    positions = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(OperatorError, match="missing positions_dtype=torch.int32; device cpu"):
        rope_halves_launch(query, tables, positions.int(), ON)
    with pytest.raises(OperatorError, match=r"must be \[positions, 64\] and positions \[2\]"):
        rope_halves_launch(query, tables[:, :32], positions, ON)
    with pytest.raises(OperatorError, match="missing tables_dtype=torch.bfloat16; device cpu"):
        rope_halves_launch(query, tables.to(BF16), positions, ON)
    kv, weight = torch.zeros(2, 576, dtype=BF16), torch.zeros(512, dtype=BF16)
    fused = torch.zeros(2, 16, 1, 576, dtype=BF16)
    with pytest.raises(OperatorError, match="missing contiguous=False; device cpu"):
        kv_rmsnorm_rope_write_launch(
            kv, weight, tables, positions, fused[..., :512], fused[..., 512:], positions, 1e-6, ON
        )
