"""Record with which shapes a server calls its operators (`--record` of the contract check).

Each embedded model is served on the reference device as it would be on an NPU (bfloat16, pages of
128 tokens) and gets requests that reach every kind of step: prefill in chunks, over a cached
prefix and mixed with decoding, batched decoding, greedy and sampled, with and without seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import requests

from sglang_ascend.errors import ConfigError
from sglang_ascend.ops.call_shapes import without_fill
from sglang_ascend.ops.spec import CHECK_OPS_ENV

MODELS = ("smollm2-135m-instruct", "tiny-deepseek-v3")
RECORDED = Path(__file__).parent / "recorded"
_FLAGS = (
    *("--device", "reference", "--dtype", "bfloat16", "--page-size", "128"),
    *("--chunked-prefill-size", "256", "--max-total-tokens", "8192", "--enable-mixed-chunk"),
)
_START_TIMEOUT_S = 300
_REQUEST_TIMEOUT_S = 300
#: Calls that differ in their number of tokens only are represented by this many of them.
_KEPT_OF_A_KIND = 3

_STORY = "In the beginning God created the heaven and the earth. " * 60
_SAMPLED = {"temperature": 0.8, "top_p": 0.9, "max_new_tokens": 6, "ignore_eos": True}
_GREEDY = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
WORKLOAD = (
    {"text": "In the beginning", "sampling_params": _GREEDY},
    {"text": [_STORY, "And God said"], "sampling_params": _GREEDY},
    {"text": [_STORY + " And again", "Light"], "sampling_params": _GREEDY},
    {"text": ["a b c d e"[: 2 * i + 1] for i in range(4)], "sampling_params": _SAMPLED},
    {"text": ["Verse", "Chapter"], "sampling_params": {**_SAMPLED, "top_k": 20, "min_p": 0.05}},
    {"text": "Psalm", "sampling_params": {**_SAMPLED, "sampling_seed": 7}},
    {"text": "Psalm", "sampling_params": {"temperature": 1.0, "max_new_tokens": 4}},
)


def record(port: int, folder: Path = RECORDED) -> dict[str, int]:
    """Serve and record every model; write `<folder>/<model>.json`. Returns calls a model."""
    counts = {}
    for model in MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            _serve(model, port, Path(scratch))
            lines = [
                line
                for path in sorted(Path(scratch, "calls").glob("*.jsonl"))
                for line in path.read_text().splitlines()
            ]
        kept = thin([json.loads(line) for line in lines])
        rows = ",\n".join(json.dumps(call) for call in kept)
        (folder / f"{model}.json").write_text(f"[\n{rows}\n]\n")
        counts[model] = len(kept)
    return counts


def thin(calls: list[dict]) -> list[dict]:
    """Of calls that are alike but for sizes of first axes and lengths: smallest, middle, largest.

    Sorted by operator and size.
    """
    kinds = defaultdict(list)
    for call in calls:
        kinds[json.dumps([call["operator"], _kind(call["arguments"])])].append(call)
    kept = []
    for alike in kinds.values():
        alike.sort(key=lambda call: (_size(call["arguments"]), json.dumps(call)))
        last = len(alike) - 1
        steps = _KEPT_OF_A_KIND - 1
        kept += [alike[at] for at in sorted({round(last * i / steps) for i in range(steps + 1)})]
    return sorted(kept, key=lambda call: (call["operator"], _size(call["arguments"])))


def _kind(value):
    if isinstance(value, dict) and "tensor" in value:
        stride = value.get("stride", [])
        axes_by_stride = sorted(range(len(stride)), key=lambda axis: -stride[axis])
        return {**without_fill(value), "tensor": value["tensor"][1:], "stride": axes_by_stride}
    if isinstance(value, dict):
        return {name: _kind(item) for name, item in value.items()}
    return "lengths" if isinstance(value, list) else value


def _size(arguments: dict) -> int:
    shapes = (value["tensor"] for value in arguments.values() if isinstance(value, dict))
    return sum(shape[0] for shape in shapes if shape)


def _serve(model: str, port: int, scratch: Path) -> None:
    log = scratch / "server.log"
    command = [sys.executable, "-m", "sglang_ascend.launch_server", "--model-path", model]
    environ = {**os.environ, CHECK_OPS_ENV: f"record={scratch / 'calls'}"}
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--port", str(port), *_FLAGS], env=environ, stdout=out, stderr=out
        )
    try:
        _wait(server, f"http://127.0.0.1:{port}/health_generate", log)
        for number, request in enumerate(WORKLOAD, 1):
            print(f"{model}: request {number} of {len(WORKLOAD)}", file=sys.stderr, flush=True)
            url = f"http://127.0.0.1:{port}/generate"
            requests.post(url, json=request, timeout=_REQUEST_TIMEOUT_S).raise_for_status()
    finally:
        server.terminate()
        server.wait(_REQUEST_TIMEOUT_S)


def _wait(server: subprocess.Popen, url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if requests.get(url, timeout=30).status_code == 200:
                return
        except requests.RequestException:
            pass
        time.sleep(0.5)
    reason = (log.read_text().strip().splitlines() or ["no output"])[-1]
    raise ConfigError(f"the server to record from did not start: {reason}")
