"""DeepSeek's published checkpoint layout, written from and read into the training modules.

transformers keeps a layer's experts in two stacked tensors; the published layout has three
matrices an expert. The MTP module is the layer after the last one, and repeats the embedding and
the output head that it shares with the main model.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch

from sglang_ascend.models.training.geometry import CONFIG
from sglang_ascend.models.training.mtp import MtpModule

WEIGHTS = "model.safetensors"


def published_tensors(main, mtp: MtpModule) -> dict[str, torch.Tensor]:
    """Every tensor by its published name: bfloat16, correction biases float32."""
    prefix = f"model.layers.{main.config.num_hidden_layers}."
    merged = dict(main.state_dict())
    merged |= {prefix + _without_layer(name): t for name, t in mtp.state_dict().items()}
    merged[prefix + "embed_tokens.weight"] = main.model.embed_tokens.weight
    merged[prefix + "shared_head.head.weight"] = main.lm_head.weight
    published = {}
    for name, tensor in merged.items():
        for published_name, part in _unstack(name, tensor.detach()):
            keep = published_name.endswith("e_score_correction_bias")
            dtype = torch.float32 if keep else torch.bfloat16
            published[published_name] = part.to(dtype).clone().contiguous()
    return published


def save_checkpoint(folder: Path, main, mtp: MtpModule, tokenizer) -> None:
    """Write config, weights and tokenizer; every file appears whole or not at all."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    generation = {"bos_token_id": CONFIG["bos_token_id"], "eos_token_id": CONFIG["eos_token_id"]}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    tokenizer.save_pretrained(folder)
    partial = folder / (WEIGHTS + ".partial")
    save_file(published_tensors(main, mtp), partial, metadata={"format": "pt"})
    partial.chmod(0o644)  # save_file leaves it readable by its owner only
    partial.replace(folder / WEIGHTS)


def load_mtp(folder: Path, config) -> MtpModule:
    """The MTP module of a published checkpoint, in float32."""
    from safetensors.torch import load_file

    prefix = f"model.layers.{config.num_hidden_layers}."
    shared = ("embed_tokens.", "shared_head.head.")
    state, stacks = {}, {}
    for name, tensor in load_file(folder / WEIGHTS).items():
        if not name.startswith(prefix) or name.removeprefix(prefix).startswith(shared):
            continue
        local = _with_layer(name.removeprefix(prefix))
        expert = re.fullmatch(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", local)
        if expert:
            stacks[expert[1], int(expert[2]), expert[3]] = tensor.float()
        else:
            state[local] = tensor.float()
    count = config.n_routed_experts
    for base in {key[0] for key in stacks}:
        state[f"{base}.gate_up_proj"] = torch.stack(
            [torch.cat([stacks[base, i, "gate"], stacks[base, i, "up"]]) for i in range(count)]
        )
        state[f"{base}.down_proj"] = torch.stack([stacks[base, i, "down"] for i in range(count)])
    mtp = MtpModule(config)
    mtp.load_state_dict(state)
    return mtp.eval()


def _unstack(name: str, tensor: torch.Tensor):
    """(published name, tensor) pairs of one training tensor; stacked experts give many."""
    if name.endswith(".experts.gate_up_proj"):
        base = name.removesuffix("gate_up_proj")
        for index, (gate, up) in enumerate(both.chunk(2) for both in tensor):
            yield f"{base}{index}.gate_proj.weight", gate
            yield f"{base}{index}.up_proj.weight", up
    elif name.endswith(".experts.down_proj"):
        base = name.removesuffix("down_proj")
        for index, down in enumerate(tensor):
            yield f"{base}{index}.down_proj.weight", down
    else:
        yield name, tensor


def _without_layer(name: str) -> str:
    return name.removeprefix("layer.")


def _with_layer(name: str) -> str:
    own = ("enorm.", "hnorm.", "eh_proj.", "shared_head.")
    return name if name.startswith(own) else "layer." + name
