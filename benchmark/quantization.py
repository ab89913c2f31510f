"""``python -m benchmark.quantization``: what INT8 costs in quality, on text no model was made from.

Serves each model in float32 and in ``ascend_w8a8``, one after the other, and compares perplexity,
first choices at every position of the text, and greedy continuations. A model that ``quantize
--smooth`` takes is served from such a folder too, calibrated on another text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import requests

from benchmark import serving_machine
from benchmark.partners import dialects
from benchmark.partners.contender import Launch
from sglang_ascend import quantize
from sglang_ascend.deploy import model_folder
from sglang_ascend.deploy.int8_layers import SCHEME
from sglang_ascend.models import catalog
from sglang_ascend.planner.calibration.ports import free_port
from sglang_ascend.planner.calibration.server_process import ServerProcess
from sglang_ascend.plugin import torchvision_ops
from sglang_ascend.quantization import smoothing

ROOT = Path(__file__).resolve().parents[1]
#: Perplexity may grow by this share.
LIMIT = 0.01
SMOOTHED = f"{SCHEME}, smoothed"
#: The model whose held-out text the smooth scales are calibrated on.
_CALIBRATION = "tiny-deepseek-v3"
#: Pages written for this package, later than the training of SmolLM2.
_PAGES = ("README.md", "docs/structure.md", "docs/planner.md", "docs/kernels.md")
_TIMEOUT_S = 600


def text_for(model: str, folder: Path) -> str:
    """The text that a model is measured on: its own held-out one, else pages of this repository."""
    own = folder / "heldout.txt"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    return "\n\n".join((ROOT / page).read_text(encoding="utf-8") for page in _PAGES)


def windows(ids: list[int], width: int, count: int) -> list[list[int]]:
    """Up to ``count`` pieces of ``width`` tokens, spread evenly over the text."""
    pieces = [ids[start : start + width] for start in range(0, len(ids) - width + 1, width)]
    if len(pieces) <= count:
        return pieces
    return [pieces[index * len(pieces) // count] for index in range(count)]


def read(url: str, pieces: list[list[int]], new_tokens: int) -> dict[str, Any]:
    """What a server makes of the pieces.

    Returns:
        ``logprobs``: of every token but the first of each piece; ``choices``: the likeliest token
        at the same positions; ``greedy``: ids that continue the first eighth of each piece.
    """
    scored = _generate(
        url,
        {
            "input_ids": pieces,
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 1,
            "sampling_params": {"temperature": 0, "max_new_tokens": 1},
        },
    )
    continued = _generate(
        url,
        {
            "input_ids": [piece[: len(piece) // 8] for piece in pieces],
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": new_tokens,
                "ignore_eos": True,
            },
        },
    )
    metas = [answer["meta_info"] for answer in scored]
    return {
        "logprobs": [entry[0] for meta in metas for entry in meta["input_token_logprobs"][1:]],
        "choices": [entry[0][1] for meta in metas for entry in meta["input_top_logprobs"][1:]],
        "greedy": [answer["output_ids"] for answer in continued],
    }


def compare(base: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Perplexities and agreement of two results of ``read`` on the same pieces."""
    tokens = len(base["logprobs"])
    perplexity = [math.exp(-sum(side["logprobs"]) / tokens) for side in (base, other)]
    same = sum(a == b for a, b in zip(base["choices"], other["choices"], strict=True))
    before = [_until_different(a, b) for a, b in zip(base["greedy"], other["greedy"], strict=True)]
    return {
        "tokens": tokens,
        "perplexity_float32": perplexity[0],
        "perplexity_int8": perplexity[1],
        "perplexity_change": perplexity[1] / perplexity[0] - 1,
        "same_first_choice": same / tokens,
        "greedy_tokens": len(base["greedy"][0]),
        "greedy_tokens_before_a_difference": sum(before) / len(before),
        "greedy_answers_equal": sum(a == b for a, b in zip(base["greedy"], other["greedy"]))
        / len(before),
    }


def _until_different(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


def _generate(url: str, body: dict) -> list[dict]:
    response = requests.post(f"{url}/generate", json=body, timeout=_TIMEOUT_S)
    response.raise_for_status()
    return response.json()


def measure(model: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Serve one model in every form and compare each INT8 one with float32, by form."""
    torchvision_ops.declare_if_missing()  # transformers imports torchvision
    from transformers import AutoTokenizer

    folder = catalog.resolve(model)
    text = text_for(model, folder)
    ids = AutoTokenizer.from_pretrained(folder)(text).input_ids
    pieces = windows(ids, options.width, options.windows)
    forms = {"float32": [model], SCHEME: [model, "--quantization", SCHEME]}
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        if model_folder.read_config(folder)["architectures"][0] in smoothing.ARCHITECTURES:
            forms[SMOOTHED] = [str(_smoothed(model, text, Path(scratch) / "int8"))]
        for name, arguments in forms.items():
            port = free_port()
            command = [sys.executable, "-m", "sglang_ascend.launch_server"]
            command += ["--device", "reference", "--port", str(port)]
            command += ["--max-total-tokens", "16384", "--model-path", *arguments]
            log = Path(scratch) / f"{name}.log"
            print(f"{model}: {name} ...", file=sys.stderr, flush=True)
            with ServerProcess(Launch(command), port, dialects.SGLANG, log) as server:
                found[name] = read(server.url, pieces, options.new_tokens)
    digest = hashlib.sha256(text.encode()).hexdigest()
    common = {"text_sha256": digest, "windows": len(pieces), "width": options.width}
    base = found.pop("float32")
    return {name: {**common, **compare(base, other)} for name, other in found.items()}


def _smoothed(model: str, text: str, out: Path) -> Path:
    """A folder with smooth scales, from a text that the model is not measured on."""
    calibration = catalog.resolve(_CALIBRATION) / "heldout.txt"
    if calibration.read_text(encoding="utf-8") == text:
        raise ValueError(f"{model} would be measured on the text of its own scales")
    print(f"{model}: quantize --smooth {calibration.name} ...", file=sys.stderr, flush=True)
    if quantize.main([model, str(out), "--smooth", str(calibration)]):
        raise RuntimeError(f"quantize did not write {model}; see its error above")
    return out


def main(argv: list[str] | None = None) -> int:
    """Return 0 where every model stays within LIMIT in its best form, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.quantization", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(catalog.EMBEDDED), metavar="MODEL")
    parser.add_argument("--windows", type=int, default=12, help="pieces of text (%(default)s)")
    parser.add_argument("--width", type=int, default=512, help="tokens of a piece (%(default)s)")
    parser.add_argument(
        "--new-tokens", type=int, default=32, help="of a greedy continuation (%(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmark" / "results" / "quantization" / "quality.json"
    )
    options = parser.parse_args(argv)
    models = {model: measure(model, options) for model in options.models}
    content = {"machine": serving_machine.describe(), "limit": LIMIT, "models": models}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(content, indent=1) + "\n")
    for model, rows in models.items():
        for form, row in rows.items():
            print(
                f"{model}, {form}: perplexity {row['perplexity_float32']:.4f} -> "
                f"{row['perplexity_int8']:.4f} ({row['perplexity_change']:+.2%}), same first "
                f"choice {row['same_first_choice']:.1%}, greedy equal for "
                f"{row['greedy_tokens_before_a_difference']:.1f} of {row['greedy_tokens']} tokens"
            )
    best = (min(row["perplexity_change"] for row in rows.values()) for rows in models.values())
    return int(any(change > LIMIT for change in best))


if __name__ == "__main__":
    sys.exit(main())
