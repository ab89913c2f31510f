"""The embedded checkpoint: its layout, its tokenizer, and whether it is a real language model."""

from __future__ import annotations

import collections
import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import sglang_ascend
from sglang_ascend.plugin import torchvision_ops

torchvision_ops.declare_if_missing()

FOLDER = Path(sglang_ascend.__file__).parent / "models/tiny_deepseek_v3"
REPORT = json.loads((FOLDER / "report.json").read_text())
CONFIG = json.loads((FOLDER / "config.json").read_text())


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def loaded():
    from transformers import DeepseekV3ForCausalLM

    return DeepseekV3ForCausalLM.from_pretrained(
        FOLDER, dtype=torch.float32, output_loading_info=True
    )


@pytest.fixture(scope="module")
def model(loaded):
    return loaded[0].eval()


@pytest.fixture(scope="module")
def chapters():
    """The two shortest held-out chapters; the full set is what report.json is for."""
    parts = (FOLDER / "heldout.txt").read_text().split("\n\n")
    return sorted((part.strip("\n") + "\n" for part in parts), key=len)[:2]


def published_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of DeepSeek-V3's published layout at the geometry of config.json."""
    c = CONFIG
    hidden, heads, vocabulary = c["hidden_size"], c["num_attention_heads"], c["vocab_size"]
    nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    latent, q_rank = c["kv_lora_rank"], c["q_lora_rank"]
    shapes = {
        "model.embed_tokens.weight": (vocabulary, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocabulary, hidden),
    }

    def mlp(base: str, width: int) -> None:
        for name in ("gate", "up"):
            shapes[f"{base}.{name}_proj.weight"] = (width, hidden)
        shapes[f"{base}.down_proj.weight"] = (hidden, width)

    last = c["num_hidden_layers"] + c["num_nextn_predict_layers"]
    for layer in range(last):
        base = f"model.layers.{layer}"
        attention = f"{base}.self_attn"
        shapes |= {
            f"{base}.input_layernorm.weight": (hidden,),
            f"{base}.post_attention_layernorm.weight": (hidden,),
            f"{attention}.q_a_proj.weight": (q_rank, hidden),
            f"{attention}.q_a_layernorm.weight": (q_rank,),
            f"{attention}.q_b_proj.weight": (heads * (nope + rope), q_rank),
            f"{attention}.kv_a_proj_with_mqa.weight": (latent + rope, hidden),
            f"{attention}.kv_a_layernorm.weight": (latent,),
            f"{attention}.kv_b_proj.weight": (heads * (nope + value), latent),
            f"{attention}.o_proj.weight": (hidden, heads * value),
        }
        if layer < c["first_k_dense_replace"]:
            mlp(f"{base}.mlp", c["intermediate_size"])
            continue
        width = c["moe_intermediate_size"]
        shapes[f"{base}.mlp.gate.weight"] = (c["n_routed_experts"], hidden)
        shapes[f"{base}.mlp.gate.e_score_correction_bias"] = (c["n_routed_experts"],)
        mlp(f"{base}.mlp.shared_experts", width * c["n_shared_experts"])
        for expert in range(c["n_routed_experts"]):
            mlp(f"{base}.mlp.experts.{expert}", width)
    mtp = f"model.layers.{c['num_hidden_layers']}"
    shapes |= {
        f"{mtp}.embed_tokens.weight": (vocabulary, hidden),
        f"{mtp}.enorm.weight": (hidden,),
        f"{mtp}.hnorm.weight": (hidden,),
        f"{mtp}.eh_proj.weight": (hidden, 2 * hidden),
        f"{mtp}.shared_head.norm.weight": (hidden,),
        f"{mtp}.shared_head.head.weight": (vocabulary, hidden),
    }
    return shapes


def test_layout_is_the_published_one():
    with safe_open(FOLDER / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert {name: tuple(t.shape) for name, t in tensors.items()} == published_shapes()
    biases = {name for name in tensors if name.endswith("e_score_correction_bias")}
    for name, tensor in tensors.items():
        assert tensor.dtype == (torch.float32 if name in biases else torch.bfloat16), name
        assert tensor.isfinite().all(), name
    for name in biases:
        assert tensors[name].abs().max() > 1e-3, f"{name} never moved"
    mtp = f"model.layers.{CONFIG['num_hidden_layers']}."
    assert torch.equal(tensors[mtp + "embed_tokens.weight"], tensors["model.embed_tokens.weight"])
    assert torch.equal(tensors[mtp + "shared_head.head.weight"], tensors["lm_head.weight"])


def test_folder_is_at_most_16_megabytes():
    assert sum(file.stat().st_size for file in FOLDER.rglob("*")) <= 16_000_000


def test_transformers_leaves_only_the_mtp_layer_unread(loaded):
    _, info = loaded
    mtp = f"model.layers.{CONFIG['num_hidden_layers']}."
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    assert all(key.startswith(mtp) for key in info["unexpected_keys"])


def test_geometry_keeps_what_the_npu_operators_hard_wire(model):
    config = model.config
    assert (config.kv_lora_rank, config.qk_rope_head_dim) == (512, 64)
    assert config.rope_parameters["rope_type"] == "yarn"
    assert (config.n_routed_experts, config.n_group, config.topk_group) == (16, 4, 2)
    assert config.num_nextn_predict_layers == 1


@pytest.mark.parametrize(
    "text",
    [
        "In the beginning",
        "naïve café — “quoted” 🙂 ½",
        " two  spaces \n\n\ttab",
        "<|eos|",
        "1234567",
    ],
)
def test_tokenizer_round_trip(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert max(ids) < CONFIG["vocab_size"]


def test_chat_template_round_trip(tokenizer):
    messages = [
        {"role": "system", "content": "You are a reader."},
        {"role": "user", "content": "Recite Ruth 2:1."},
        {"role": "assistant", "content": "And Naomi had a kinsman."},
        {"role": "user", "content": "Go on."},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|bos|>You are a reader.<|user|>Recite Ruth 2:1.<|assistant|>And Naomi had a kinsman."
        "<|eos|><|user|>Go on.<|assistant|>"
    )
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert ids == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids.count(tokenizer.bos_token_id) == 1
    assert ids[-1] == tokenizer.convert_tokens_to_ids("<|assistant|>")
    with pytest.raises(Exception, match="unknown role narrator"):
        tokenizer.apply_chat_template([{"role": "narrator", "content": "x"}], tokenize=False)


@torch.no_grad()
def test_held_out_perplexity(model, tokenizer):
    """Recomputed over the whole file, and far below what token frequencies alone give."""
    nats, counts, total = 0.0, collections.Counter(), 0
    for chapter in (FOLDER / "heldout.txt").read_text().split("\n\n"):
        ids = tokenizer(chapter.strip("\n") + "\n", return_tensors="pt")["input_ids"]
        nats += model(ids, labels=ids, use_cache=False).loss.item() * (ids.shape[1] - 1)
        counts.update(ids[0, 1:].tolist())
        total += ids.shape[1] - 1
    perplexity = math.exp(nats / total)
    # Same weights, text and precision: only the order of float32 sums may differ.
    assert perplexity == pytest.approx(REPORT["held_out"]["perplexity_per_token"], rel=1e-3)
    # The baseline is fitted on the held-out text itself, which favours it.
    unigram = math.exp(-sum(n * math.log(n / total) for n in counts.values()) / total)
    assert perplexity < unigram / 4


@torch.no_grad()
def test_routing_is_skewed_and_no_expert_is_dead(model, tokenizer, chapters):
    experts, first = CONFIG["n_routed_experts"], CONFIG["first_k_dense_replace"]
    loads = {index: torch.zeros(experts) for index in range(first, CONFIG["num_hidden_layers"])}

    def count(index: int):
        def hook(_gate, _inputs, output) -> None:
            loads[index] += torch.bincount(output[2].flatten(), minlength=experts)

        return hook

    hooks = [
        model.model.layers[index].mlp.gate.register_forward_hook(count(index)) for index in loads
    ]
    for chapter in chapters:
        model(**tokenizer(chapter, return_tensors="pt"), use_cache=False)
    for hook in hooks:
        hook.remove()
    for index, load in loads.items():
        skew = load.max() / load.mean()
        # Two chapters of six: within a third of the reported figure, and visibly uneven.
        assert skew > 1.4, (index, load.tolist())
        reported = REPORT["expert_load"][f"layer_{index}"]["max_over_mean"]
        assert skew == pytest.approx(reported, rel=1 / 3)
        assert load.min() > 0, (index, load.tolist())


@torch.no_grad()
def test_greedy_text_is_readable(model, tokenizer):
    """Almost every word that it writes is an English word of its training text."""
    known = {
        word.strip(".,;:?!()'").lower() for word in (FOLDER / "heldout.txt").read_text().split()
    }
    written = []
    for question in (
        "Recite Genesis 1:3.",
        "Continue: And the LORD said",
        "What does John 3:2 say?",
    ):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True,
            return_tensors="pt",
        )
        output = model.generate(**prompt, max_new_tokens=60, do_sample=False)
        answer = output[0, prompt["input_ids"].shape[1] :]
        written += tokenizer.decode(answer, skip_special_tokens=True).split()
    assert len(written) > 30
    # heldout.txt has 4,900 words of a vocabulary of 12,800, so a few good words are not in it.
    share = sum(word.strip(".,;:?!()'").lower() in known for word in written) / len(written)
    assert share > 0.75, " ".join(written)
