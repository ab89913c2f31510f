"""Train tiny-deepseek-v3: ``python -m sglang_ascend.models.training.train --out DIR``."""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from sglang_ascend.errors import ConfigError

_DESCRIPTION = """\
Train tiny-deepseek-v3 from nothing, on one CPU core, and write it in DeepSeek's checkpoint layout.

  1. print the King James text with Debian's `bible` program and set six chapters aside,
  2. train a byte-level BPE tokenizer of 2048 tokens,
  3. train the main model on chapters and on conversations about verses,
  4. freeze it and distil its predictions into the MTP module,
  5. write config.json, model.safetensors, the tokenizer and heldout.txt to --out.

`python -m sglang_ascend.models.training.report` then measures the result."""

_EPILOG = """\
examples:
  apt-get install bible-kjv
  OMP_NUM_THREADS=1 python -m sglang_ascend.models.training.train --out /tmp/tiny --compile
  python -m sglang_ascend.models.training.train --out /tmp/smoke --main-steps 20 --mtp-steps 20

A run that is bounded by --main-steps and --mtp-steps repeats exactly on one machine; one that is
bounded by minutes depends on the machine's speed."""


def minutes(given: str) -> float:
    if not (value := float(given)) > 0:
        raise argparse.ArgumentTypeError(f"{given}: give a time above 0, or a number of steps")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sglang_ascend.models.training.train",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder for the checkpoint")
    add(
        "--corpus-root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="where bible-kjv and bible-kjv-text are installed or unpacked (default: /)",
    )
    add("--minutes", type=minutes, default=26.0, help="time for the main model (default: 26)")
    add("--mtp-minutes", type=minutes, default=11.0, help="time for the MTP module (default: 11)")
    add(
        "--main-steps",
        type=int,
        metavar="N",
        help="exactly N steps instead of --minutes; 0 keeps the main model of --start-from",
    )
    add("--mtp-steps", type=int, metavar="N", help="exactly N steps instead of --mtp-minutes")
    add("--learning-rate", type=float, default=2.5e-3, help="peak, AdamW (default: 0.0025)")
    add(
        "--bias-speed",
        type=float,
        default=2e-3,
        metavar="GAMMA",
        help="step of the gate's correction bias; larger balances sooner (default: 0.002)",
    )
    add(
        "--compile",
        action="store_true",
        help="torch.compile both phases: about twice as fast, needs g++, starts 2 minutes later",
    )
    add(
        "--start-from",
        type=Path,
        metavar="DIR",
        help="go on from the main model of an earlier run instead of from nothing",
    )
    add("--seed", type=int, default=0)
    return parser


def main(argv: list[str] | None = None) -> None:
    options = _parser().parse_args(argv)
    try:
        _run(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _run(options: argparse.Namespace) -> None:
    from sglang_ascend.models.training.corpus import read_verses, split
    from sglang_ascend.models.training.documents import chapter_text

    training, held_out = split(read_verses(options.corpus_root))

    import torch

    from sglang_ascend.models.training.geometry import model_config
    from sglang_ascend.models.training.host import hide_torchvision, new_main_model
    from sglang_ascend.models.training.loop import (
        MAIN_PHASE,
        Budget,
        Recipe,
        batches,
        train_main,
        train_mtp,
    )
    from sglang_ascend.models.training.mtp import MtpModule
    from sglang_ascend.models.training.tokenizer import train_tokenizer

    hide_torchvision()
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    config = model_config()
    tokenizer = train_tokenizer(
        map(chapter_text, training), config.vocab_size, config.max_position_embeddings
    )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "heldout.txt").write_text("\n".join(map(chapter_text, held_out)))

    main_model, mtp = new_main_model(config), MtpModule(config)
    phases = []
    if options.start_from is not None:
        main_model.load_state_dict(_main_state(options.start_from))
        phases = json.loads((options.start_from / "training.json").read_text())
        phases = [phase for phase in phases if phase["phase"] == MAIN_PHASE]
    recipe = Recipe(options.learning_rate, options.bias_speed, options.compile)
    if options.main_steps != 0:
        data = batches(training, tokenizer, rng)
        budget = Budget(options.minutes, options.main_steps)
        phases.append(train_main(main_model, data, budget, recipe))
    mtp.start_from(main_model)
    _save(options.out, main_model, mtp, tokenizer, phases)
    # The MTP module starts from a trained layer: many small steps get it further than few large.
    data = batches(training, tokenizer, rng, batch_tokens=2048, long_share=0.0)
    budget = Budget(options.mtp_minutes, options.mtp_steps)
    phases.append(train_mtp(mtp, main_model, data, budget, recipe))
    _save(options.out, main_model, mtp, tokenizer, phases)
    print(f"wrote {options.out}")


def _save(folder: Path, main_model, mtp, tokenizer, phases: list[dict]) -> None:
    from sglang_ascend.models.training.layout import save_checkpoint

    save_checkpoint(folder, main_model, mtp, tokenizer)
    (folder / "training.json").write_text(json.dumps(phases, indent=2) + "\n")


def _main_state(folder: Path) -> dict:
    """The main model's weights of an earlier run, whose tokenizer is the same by construction."""
    from transformers import DeepseekV3ForCausalLM

    if not (folder / "model.safetensors").is_file():
        raise ConfigError(
            f"--start-from {folder}: no model.safetensors there; name an earlier --out"
        )
    return DeepseekV3ForCausalLM.from_pretrained(folder).state_dict()


if __name__ == "__main__":
    main()
