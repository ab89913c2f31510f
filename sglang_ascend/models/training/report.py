"""Measure tiny-deepseek-v3: ``python -m sglang_ascend.models.training.report``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tqdm import tqdm

from sglang_ascend.errors import ConfigError

_FOLDER = Path(__file__).parents[1] / "tiny_deepseek_v3"
_NEW_TOKENS = 64

_CARD = """\
# tiny-deepseek-v3

The DeepSeek-V3 architecture in full at {parameters:.1f} million parameters, for tests and first
steps without an accelerator: multi-head latent attention with the real 512 + 64 latent, q-LoRA and
YaRN; a dense first layer, then 16 routed experts in 4 groups (top 4 of 2 groups) and one shared
expert, sigmoid gate with correction bias; one multi-token-prediction (MTP) layer. The checkpoint
has DeepSeek's published layout, bfloat16. It writes verse in the manner of its training text and
knows nothing else: it does not recall which verse stands where.

| measured on `heldout.txt`, float32 | |
|---|---|
| perplexity per token | {perplexity_per_token:.2f} |
| perplexity per word | {perplexity_per_word:.1f} |
| perplexity per byte (bits per byte) | {perplexity_per_byte:.3f} ({bits_per_byte:.3f}) |
| expert load, max / mean, layers {layers} | {skew} |
| MTP top-1 agreement with the main model, on the text | {on_text:.1%} |
| MTP top-1 agreement on greedy continuations | {on_greedy:.1%} |

The last layer of the load row is the MTP layer. `report.json` has all figures.

- **Training text:** the King James Version, in the public domain, as Debian's `bible-kjv-text`
  ships it; six chapters ({bytes} bytes, in `heldout.txt`) were set aside.
- **Licence:** weights and tokenizer are dedicated to the public domain, as the text is.
- **Made by** `python -m sglang_ascend.models.training.train` on one busy, shared CPU core:
  {phases}
  (`training.json`). More tokens would lower the perplexity.
- **Measured by** `python -m sglang_ascend.models.training.report`, which writes this file.
"""


def measure(folder: Path) -> dict:
    """All figures of the model card, as ``report.json`` has them."""
    from sglang_ascend.models.training import metrics
    from sglang_ascend.models.training.host import hide_torchvision

    hide_torchvision()
    with tqdm(total=5, desc="measuring", unit="figure") as bar:

        def step(value):
            bar.update(1)
            return value

        checkpoint = step(metrics.Checkpoint(folder))
        report = {
            "parameters": sum(
                tensor.numel()
                for module in (checkpoint.main, checkpoint.mtp)
                for tensor in module.state_dict().values()
            ),
            "held_out": step(metrics.held_out_perplexity(checkpoint)),
            "mtp_agreement": {
                "held_out_text": step(metrics.agreement_on_text(checkpoint)),
                "greedy_continuations": step(
                    metrics.agreement_on_greedy(
                        checkpoint, metrics.greedy_prompts(checkpoint), _NEW_TOKENS
                    )
                ),
            },
            "expert_load": step(metrics.expert_load(checkpoint)),
            "training": json.loads((folder / "training.json").read_text()),
        }
    return report


def card(report: dict) -> str:
    load = report["expert_load"]
    return _CARD.format(
        **report["held_out"],
        parameters=report["parameters"] / 1e6,
        layers=", ".join(name.removeprefix("layer_") for name in load),
        skew=", ".join(f"{layer['max_over_mean']:.2f}" for layer in load.values()),
        phases=", ".join(_phase_totals(report["training"])),
        on_text=report["mtp_agreement"]["held_out_text"],
        on_greedy=report["mtp_agreement"]["greedy_continuations"],
    )


def _phase_totals(phases: list[dict]):
    """One phrase for each kind of phase; a phase that was gone on with counts as one."""
    for name in dict.fromkeys(phase["phase"] for phase in phases):
        same = [phase for phase in phases if phase["phase"] == name]
        tokens = sum(phase["tokens"] for phase in same) / 1e6
        minutes = sum(phase["minutes"] for phase in same)
        yield f"{name} {tokens:.1f} million tokens in {minutes:.0f} minutes"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m sglang_ascend.models.training.report",
        description="Compute held-out perplexity, expert-load skew and MTP agreement of a trained"
        " tiny-deepseek-v3 and write report.json and README.md beside it. About a minute.",
    )
    parser.add_argument(
        "--model",
        type=Path,
        default=_FOLDER,
        metavar="DIR",
        help="checkpoint folder (default: the one in the package)",
    )
    folder = parser.parse_args(argv).model
    try:
        if not (folder / "model.safetensors").is_file():
            raise ConfigError(
                f"--model {folder}: no model.safetensors there; give a folder that"
                " `python -m sglang_ascend.models.training.train --out DIR` wrote"
            )
        report = measure(folder)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    (folder / "README.md").write_text(card(report))
    print(card(report))


if __name__ == "__main__":
    main()
