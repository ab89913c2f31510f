"""Flags of benchmark.serving."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from benchmark import partners
from benchmark.partners import ours
from sglang_ascend.errors import ConfigError
from sglang_ascend.models import catalog

_RESULTS = Path(__file__).resolve().parent / "results" / "serving.json"
NONE = "none"
_HELP = """\
Output tokens a second, time to first token (TTFT), time per output token (TPOT), peak memory and
start-up of this package on the reference device, and of other servers of the same model on the same
machine, one after the other.

A round starts every server in turn, sends the same random prompts at each concurrency in a closed
loop (greedy, no early end, over the server's own streaming HTTP), some times over, and ends it;
rounds repeat, so that other load on the machine falls on all. Medians of all measurements count.
Start-up is the time from the start of the process to its first answered request. Memory is the peak
of the proportional set size (PSS) of all its processes. Run it on a quiet machine: client and
server share its cores.

Results: a table, FILE, and a plot beside it (.svg). A partner that is not there is named with the
command that installs it.
"""
_EXAMPLES = f"""\
examples:
  python -m benchmark.serving                                     everything; half an hour and more
  python -m benchmark.serving --partners none --rounds 1          ours only
  python -m benchmark.serving --partners transformers,llama.cpp --concurrency 1
  python -m benchmark.serving --model tiny-deepseek-v3 --partners none --out tiny.json
  python -m benchmark.partners install llama.cpp                  make a partner available

partners: {", ".join(partners.FAMILIES)}
"""


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags, checked.

    Returns:
        With ``folder`` (the checkpoint) and ``vocabulary`` (token ids) added, and lists where
        several values may be given. ``requests`` may be None: see ``requests_at``.

    Raises:
        ConfigError: values out of range or that do not fit together.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.serving",
        description=_HELP,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    adding = parser.add_argument
    adding("--model", default=catalog.DEFAULT_MODEL, help="embedded model or checkpoint folder")
    adding(
        "--ours",
        default=",".join(ours.FORMATS),
        metavar="FORMAT,...",
        help=f"formats of ours: {', '.join(ours.FORMATS)}, or none (default: all)",
    )
    adding(
        "--partners",
        default=",".join(partners.FAMILIES),
        metavar="NAME,...",
        help="partners, or none (default: all, see below)",
    )
    adding("--rounds", type=int, default=3, help="times that each server is started (default: 3)")
    adding(
        "--repeats",
        type=int,
        default=2,
        help="measurements at each concurrency in a round, in turns (default: 2)",
    )
    adding(
        "--concurrency",
        default="1,16",
        metavar="N,N,...",
        help="requests at the same time (default: 1,16)",
    )
    adding("--input-len", type=int, default=128, help="tokens of a prompt (default: 128)")
    adding("--output-len", type=int, default=64, help="tokens of an answer (default: 64)")
    adding(
        "--requests",
        type=int,
        help="requests of a measurement (default: 3, or the concurrency if larger)",
    )
    adding("--out", type=Path, default=_RESULTS, metavar="FILE", help="results as JSON")
    adding(
        "--logs", type=Path, metavar="FOLDER", help="keep what the servers say (default: do not)"
    )
    adding(
        "--llama-server",
        type=Path,
        default=os.environ.get("LLAMA_SERVER"),
        metavar="FILE",
        help="a llama-server, with llama-quantize beside it (default: $LLAMA_SERVER, else the "
        "installed one)",
    )
    adding(
        "--vllm-python",
        type=Path,
        default=os.environ.get("VLLM_PYTHON"),
        metavar="FILE",
        help="Python of an environment with vLLM for CPU (default: $VLLM_PYTHON, else the "
        "installed one)",
    )
    given = parser.parse_args(argv)
    given.ours = _chosen("--ours", given.ours, ours.FORMATS)
    given.partners = _chosen("--partners", given.partners, partners.FAMILIES)
    given.concurrency = _integers("--concurrency", given.concurrency)
    _check(given)
    # A relative path may be one for another folder by the time a server starts.
    for name in ("llama_server", "vllm_python", "logs"):
        if path := getattr(given, name):
            setattr(given, name, Path(path).expanduser().absolute())
    given.folder = catalog.resolve(given.model)
    _read_model(given)
    return given


def requests_at(given: argparse.Namespace, concurrency: int) -> int:
    """Requests of a cell."""
    return given.requests or max(3, concurrency)


def _chosen(flag: str, text: str, accepted: tuple[str, ...]) -> list[str]:
    if text == NONE:
        return []
    found = [word for word in text.split(",") if word]
    wrong = [word for word in found if word not in accepted]
    if wrong or not found:
        raise ConfigError(
            f"{flag} {text!r} is not accepted; choose from {', '.join(accepted)}, separated by "
            f"commas, or {NONE}"
        )
    return list(dict.fromkeys(found))


def _integers(flag: str, text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise ConfigError(f"{flag} {text!r} is not accepted; give numbers such as 1,16")
    return list(dict.fromkeys(found))


def _check(given: argparse.Namespace) -> None:
    if not given.ours and not given.partners:
        raise ConfigError("--ours none --partners none leaves nothing to measure; name one of them")
    for flag in ("rounds", "repeats", "input_len", "output_len"):
        if getattr(given, flag) < 1:
            shown = f"--{flag.replace('_', '-')} {getattr(given, flag)}"
            raise ConfigError(f"{shown} is too small; give 1 or more")
    if given.output_len < 2:
        raise ConfigError("--output-len 1 has no time per output token; give 2 or more")
    if given.requests is not None and given.requests < max(given.concurrency):
        raise ConfigError(
            f"--requests {given.requests} never reaches a concurrency of "
            f"{max(given.concurrency)}; give at least as many, or a smaller --concurrency"
        )
    if given.out.is_dir() or given.out.suffix == ".svg":
        raise ConfigError(
            f"--out {given.out} is not a file for JSON; give one such as serving.json"
        )


def _read_model(given: argparse.Namespace) -> None:
    file = given.folder / "config.json"
    try:
        config = json.loads(file.read_text())
        given.vocabulary = int(config["vocab_size"])
        longest = int(config["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"--model {given.model}: {file.name} cannot be used ({type(error).__name__}: {error}); "
            "give a checkpoint folder of a language model, or one of "
            f"{', '.join(catalog.EMBEDDED)}"
        ) from error
    asked = given.input_len + given.output_len
    if asked > longest:
        raise ConfigError(
            f"--input-len {given.input_len} and --output-len {given.output_len} are {asked} "
            f"tokens, {given.model} takes {longest}; give smaller ones"
        )
