"""Defaults of SGLang's flags on our devices, for whatever the user left open."""

from __future__ import annotations

from sglang_ascend.plugin.platform_base import ATTENTION_BACKEND

#: Tokens a cache page. The NPU's paged attention is fastest at 128, where its operators expect it;
#: the reference device keeps prefix matching as fine as it can be.
DEFAULT_PAGE_SIZE = {"npu": 128, "reference": 1}

#: Tokens of the KV pool on the reference device. SGLang would take nearly all free memory, which a
#: machine that serves nothing else can spare and a laptop cannot.
DEFAULT_POOL_TOKENS = 65_536


def apply_defaults(args, device: str) -> None:
    """Fill unset fields of SGLang's server arguments (a view that records what is assigned)."""
    if args.attention_backend in (None, "intel_amx", "torch_native"):
        args.attention_backend = ATTENTION_BACKEND
    if args.sampling_backend is None or device == "reference":
        args.sampling_backend = "pytorch"
    if device == "reference":
        # Nothing to overlap or capture on a CPU, and both cost start-up time.
        args.disable_cuda_graph = True
        args.disable_overlap_schedule = True
        args.disable_custom_all_reduce = True
        # SGLang's idle scheduler polls at full speed, which would take a core of a laptop.
        args.sleep_on_idle = True
        if args.max_total_tokens is None:
            args.max_total_tokens = DEFAULT_POOL_TOKENS
        if args.dtype == "auto":
            args.dtype = "float32"
