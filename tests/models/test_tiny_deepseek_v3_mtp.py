"""The MTP layer, run in plain torch straight from the checkpoint's tensors.

Nothing here comes from the training code or from a transformers layer, so that a wrong order in
``eh_proj``, a wrong name or a wrong rotary layout shows as lost agreement.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

import sglang_ascend
from sglang_ascend.plugin import torchvision_ops

torchvision_ops.declare_if_missing()

FOLDER = Path(sglang_ascend.__file__).parent / "models/tiny_deepseek_v3"
REPORT = json.loads((FOLDER / "report.json").read_text())
CONFIG = json.loads((FOLDER / "config.json").read_text())


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"]) * weight


def yarn_frequencies() -> torch.Tensor:
    """Radians a position, float32 [qk_rope_head_dim / 2]; YaRN (arXiv 2309.00071), equation 23."""
    size, base, yarn = CONFIG["qk_rope_head_dim"], CONFIG["rope_theta"], CONFIG["rope_scaling"]
    plain = base ** (-torch.arange(0, size, 2) / size)

    def dimension(turns: float) -> float:
        wavelength = yarn["original_max_position_embeddings"] / (turns * 2 * math.pi)
        return size * math.log(wavelength) / (2 * math.log(base))

    low = max(math.floor(dimension(yarn["beta_fast"])), 0)
    high = min(math.ceil(dimension(yarn["beta_slow"])), size - 1)
    ramp = ((torch.arange(size // 2) - low) / (high - low)).clamp(0, 1)
    return plain / yarn["factor"] * ramp + plain * (1 - ramp)


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotate interleaved pairs of [tokens, heads, qk_rope_head_dim] by their position."""
    angle = torch.outer(torch.arange(x.shape[0]).float(), yarn_frequencies())[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    pair = (even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin())
    return torch.stack(pair, dim=-1).flatten(-2)


class PlainMtp:
    """Logits [n, vocabulary] from ids [n] and the hidden states [n, hidden] one token earlier."""

    def __init__(self, tensors: dict[str, torch.Tensor]):
        prefix = f"model.layers.{CONFIG['num_hidden_layers']}."
        self.tensors = {
            name.removeprefix(prefix): tensor.float()
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }

    def weight(self, name: str) -> torch.Tensor:
        return self.tensors[name + ".weight"]

    def __call__(self, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        embeddings = self.weight("embed_tokens")[ids]
        both = [
            rms_norm(embeddings, self.weight("enorm")),
            rms_norm(hidden, self.weight("hnorm")),
        ]
        x = torch.cat(both, dim=-1) @ self.weight("eh_proj").T
        x = x + self.attention(rms_norm(x, self.weight("input_layernorm")))
        x = x + self.experts(rms_norm(x, self.weight("post_attention_layernorm")))
        return rms_norm(x, self.weight("shared_head.norm")) @ self.weight("shared_head.head").T

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        heads, nope = CONFIG["num_attention_heads"], CONFIG["qk_nope_head_dim"]
        rope, value = CONFIG["qk_rope_head_dim"], CONFIG["v_head_dim"]
        count = x.shape[0]
        low = rms_norm(
            x @ self.weight("self_attn.q_a_proj").T, self.weight("self_attn.q_a_layernorm")
        )
        query = (low @ self.weight("self_attn.q_b_proj").T).view(count, heads, nope + rope)
        latent, shared_key = (x @ self.weight("self_attn.kv_a_proj_with_mqa").T).split(
            [CONFIG["kv_lora_rank"], rope], dim=-1
        )
        latent = rms_norm(latent, self.weight("self_attn.kv_a_layernorm"))
        expanded = (latent @ self.weight("self_attn.kv_b_proj").T).view(count, heads, nope + value)
        yarn = CONFIG["rope_scaling"]
        mscale = 0.1 * yarn["mscale_all_dim"] * math.log(yarn["factor"]) + 1.0
        scores = torch.einsum("qhd,khd->hqk", query[..., :nope], expanded[..., :nope])
        scores = scores + torch.einsum(
            "qhd,kd->hqk", rotate(query[..., nope:]), rotate(shared_key[:, None])[:, 0]
        )
        scores = scores * (nope + rope) ** -0.5 * mscale**2
        future = torch.ones(count, count, dtype=torch.bool).triu(1)
        attention = scores.masked_fill(future, float("-inf")).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", attention, expanded[..., nope:])
        return mixed.flatten(1) @ self.weight("self_attn.o_proj").T

    def experts(self, x: torch.Tensor) -> torch.Tensor:
        groups, chosen_groups = CONFIG["n_group"], CONFIG["topk_group"]
        scores = (x @ self.weight("mlp.gate").T).sigmoid()
        biased = (scores + self.tensors["mlp.gate.e_score_correction_bias"]).unflatten(
            -1, (groups, -1)
        )
        best = biased.topk(2, dim=-1).values.sum(-1).topk(chosen_groups, dim=-1).indices
        keep = torch.zeros(x.shape[0], groups, dtype=torch.bool).scatter(1, best, True)
        allowed = biased.masked_fill(~keep[..., None], float("-inf")).flatten(1)
        chosen = allowed.topk(CONFIG["num_experts_per_tok"], dim=-1).indices
        weights = torch.zeros_like(scores).scatter(1, chosen, scores.gather(1, chosen))
        weights = weights / weights.sum(-1, keepdim=True) * CONFIG["routed_scaling_factor"]
        output = self.swiglu("mlp.shared_experts", x)
        for expert in range(CONFIG["n_routed_experts"]):
            output = output + weights[:, expert, None] * self.swiglu(f"mlp.experts.{expert}", x)
        return output

    def swiglu(self, base: str, x: torch.Tensor) -> torch.Tensor:
        gate = functional.silu(x @ self.weight(base + ".gate_proj").T)
        return (gate * (x @ self.weight(base + ".up_proj").T)) @ self.weight(base + ".down_proj").T


@pytest.fixture(scope="module")
def main():
    from transformers import DeepseekV3ForCausalLM

    return DeepseekV3ForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def mtp():
    return PlainMtp(load_file(FOLDER / "model.safetensors"))


@torch.no_grad()
def agreement(main, mtp, ids: torch.Tensor, start: int) -> torch.Tensor:
    """For each token from ``start`` + 1 on: is the draft the main model's choice? bool [n]."""
    hidden = main.model(ids, use_cache=False).last_hidden_state
    drafted = mtp(ids[0, 1:], hidden[0, :-1]).argmax(-1)
    chosen = main.lm_head(hidden)[0].argmax(-1)
    return drafted[start - 1 : -1] == chosen[start:-1]


def test_agreement_on_held_out_text(main, mtp, tokenizer):
    chapter = (FOLDER / "heldout.txt").read_text().split("\n\n")[1]
    ids = tokenizer(chapter, return_tensors="pt")["input_ids"]
    share = agreement(main, mtp, ids, start=1).float().mean().item()
    # One chapter of six; they differ by a few points around the reported mean.
    assert share == pytest.approx(REPORT["mtp_agreement"]["held_out_text"], abs=0.08)


@torch.no_grad()
def test_agreement_on_greedy_continuations(main, mtp, tokenizer):
    equal = []
    for question in (
        "Recite Genesis 1:3.",
        "Continue: And the LORD said",
        "Read Ruth 2 from verse 1.",
    ):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt"
        )
        ids = main.generate(**prompt, max_new_tokens=48, do_sample=False)
        equal.append(agreement(main, mtp, ids, start=prompt["input_ids"].shape[1]))
    equal = torch.cat(equal)
    assert len(equal) > 60
    assert equal.float().mean() >= 0.6
    assert REPORT["mtp_agreement"]["greedy_continuations"] >= 0.6


@torch.no_grad()
def test_transformers_own_mtp_module_says_the_same(main, mtp, tokenizer):
    from transformers.modeling_layers import MtpModel

    # The class attribute knows the MTP layer of the 61-layer model only.
    main._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{CONFIG['num_hidden_layers']}\..*"]
    theirs = MtpModel.from_pretrained(main)
    ids = tokenizer("And Ruth the Moabitess said unto Naomi", return_tensors="pt")["input_ids"]
    hidden = main.model(ids, use_cache=False).last_hidden_state
    _, logits, _ = theirs(
        ids[:, 1:],
        hidden[:, :-1],
        attention_mask=None,
        position_ids=torch.arange(1, ids.shape[1])[None],
        mtp_cache=None,
    )
    # Float32 sums in another order, and positions that start at 1 instead of 0.
    torch.testing.assert_close(
        logits[0, -1], mtp(ids[0, 1:], hidden[0, :-1])[-1], atol=1e-3, rtol=1e-3
    )


@torch.no_grad()
def test_each_input_matters(main, mtp, tokenizer):
    """Swapping the two halves of ``eh_proj`` must cost agreement: the order is a real fact."""
    swapped = PlainMtp({})
    hidden = CONFIG["hidden_size"]
    halves = mtp.weight("eh_proj").split(hidden, dim=1)
    swapped.tensors = mtp.tensors | {"eh_proj.weight": torch.cat(halves[::-1], dim=1)}
    chapter = (FOLDER / "heldout.txt").read_text().split("\n\n")[1]
    ids = tokenizer(chapter, return_tensors="pt")["input_ids"][:, :256]
    right = agreement(main, mtp, ids, start=1).float().mean()
    wrong = agreement(main, swapped, ids, start=1).float().mean()
    assert right > wrong + 0.1
