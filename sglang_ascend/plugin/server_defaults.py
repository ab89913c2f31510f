"""Defaults of SGLang's flags on our devices, for whatever the user left open."""

from __future__ import annotations

from sglang_ascend.attention.backend_name import ATTENTION_BACKEND
from sglang_ascend.deploy.expert_parallel import EP_BACKEND
from sglang_ascend.errors import ConfigError

#: Tokens a cache page. 128 is what the NPU's paged attention takes; the reference device keeps
#: prefix matching as fine as it can be.
DEFAULT_PAGE_SIZE = {"npu": 128, "reference": 1}

#: Tokens of the KV pool on the reference device. SGLang would take nearly all free memory, which a
#: machine that serves nothing else can spare and a laptop cannot.
DEFAULT_POOL_TOKENS = 65_536

#: Longest wait of a collective. Without it, torch waits for half an hour.
COLLECTIVE_TIMEOUT_S = 300

#: What SGLang itself has put in by now for a CPU or an NPU, where the user named nothing.
_UPSTREAM_ATTENTION = (None, "ascend", "intel_amx", "torch_native", ATTENTION_BACKEND)


def apply_defaults(args, device: str) -> None:
    """Fill unset fields of SGLang's server arguments (a view that records what is assigned).

    Raises:
        ConfigError: an attention backend was asked for that does not run on this device.
    """
    for field in ("attention_backend", "prefill_attention_backend", "decode_attention_backend"):
        given = getattr(args, field)
        if given not in _UPSTREAM_ATTENTION:
            raise ConfigError(
                f"--{field.replace('_', '-')} {given} does not run on {device}; drop the flag, "
                f"{ATTENTION_BACKEND} is the default"
            )
        if given is not None or field == "attention_backend":
            setattr(args, field, ATTENTION_BACKEND)
    args.sampling_backend = "pytorch"
    if args.page_size is None:
        args.page_size = DEFAULT_PAGE_SIZE[device]
    _parallel_defaults(args)
    if device == "reference":
        _reference_defaults(args)


def _parallel_defaults(args) -> None:
    if args.tp_size == args.ep_size > 1 and args.moe_a2a_backend == "none":
        args.moe_a2a_backend = EP_BACKEND
    if args.dist_timeout is None:
        args.dist_timeout = COLLECTIVE_TIMEOUT_S
    if args.boundary_reduction == "auto":
        # SGLang's default takes reduce-scatters of uneven pieces, which exist in NCCL only.
        args.boundary_reduction = "ar"


def _reference_defaults(args) -> None:
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
