"""Everything that can be known to be wrong before a process starts.

Each check raises ``ConfigError`` with one line. The cheap and certain ones come first, so that a
typing error is not reported as a lack of memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from sglang_ascend.deploy import (
    architectures,
    checkpoint,
    expert_parallel,
    flags,
    int8_checkpoint,
    layout,
    memory,
    model_folder,
    number_formats,
    ports,
)
from sglang_ascend.moe import settings


def run(server_args: dict[str, Any], device: Literal["npu", "reference"]) -> None:
    """Check SGLang's server arguments, not yet resolved, against the machine and the checkpoint.

    Args:
        server_args: the fields of SGLang's ``ServerArgs``. ``model_path``, ``host`` and ``port``
            must be there; a field that is absent or None stands for "not given".
        device: the device that was chosen.

    Raises:
        ConfigError: with what was given, what is accepted and what to do next.
    """
    given = {name: value for name, value in server_args.items() if value is not None}
    folder = Path(given["model_path"])
    config = model_folder.read_config(folder, given.get("json_model_override_args", "{}"))
    language = model_folder.text_config(config)

    architectures.check(config, given.get("model_impl", "auto"))
    ranks = layout.resolve(given)
    flags.check(given, language, device)
    layout.check_model(ranks, language, given.get("ep_size", 1))
    expert_parallel.check({"tp_size": 1, **given}, language, settings.from_environment(), device)
    dtype = number_formats.resolve_dtype(language, given.get("dtype", "auto"), device)
    number_formats.check_kv_cache_dtype(given.get("kv_cache_dtype", "auto"), device)
    scheme = number_formats.check_quantization(
        folder, config, given.get("quantization"), dtype, device
    )
    model_folder.check_tokenizer(
        folder, given.get("tokenizer_path"), given.get("skip_tokenizer_init", False)
    )
    tensors = checkpoint.tensors(folder, given.get("load_format", "auto"))
    stored = int8_checkpoint.read(folder, config, tensors, device) if scheme else None
    number_formats.check_weights(tensors, device, stored.int8 if stored else frozenset())
    ports.check(given["host"], given["port"])
    if device == "reference":
        # The NPU's memory is not this process's to open; SGLang measures it in each rank.
        width = number_formats.BYTES[dtype]
        memory.check(
            memory.weight_bytes(tensors, width, stored.quantises if stored else None),
            memory.kv_bytes_per_token(language, width, ranks.attention_tp),
            ranks,
            given,
            memory.available_bytes(),
        )
