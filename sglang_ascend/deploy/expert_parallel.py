"""Whether the experts can be spread over the ranks as asked."""

from __future__ import annotations

from typing import Any

from sglang_ascend.deploy import layout
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe.dispatch.placement import ExpertPlacement
from sglang_ascend.moe.settings import EpSettings

#: SGLang's name for the MoE all-to-all backend in whose place ours runs.
EP_BACKEND = "ascend_fuseep"


def check(args: dict[str, Any], config: dict[str, Any], chosen: EpSettings, device: str) -> None:
    """Raise ConfigError for the first contradiction.

    Args:
        args: SGLang's server arguments before it resolves them.
        config: the language model's part of ``config.json``.
        chosen: our own flags.
        device: ``npu`` or ``reference``.
    """
    backend, ep, tp = args.get("moe_a2a_backend", "none"), args.get("ep_size", 1), args["tp_size"]
    if backend not in ("none", EP_BACKEND):
        raise ConfigError(
            f"--moe-a2a-backend {backend} does not run on {device}; drop it and give --ep-size {tp}"
        )
    spread = tp if backend == EP_BACKEND else ep
    asked = _asked(chosen)
    if spread == 1 or spread != tp:
        if asked:
            raise ConfigError(
                f"{asked} needs the experts spread over all ranks, got --ep-size {ep} with "
                f"--tp-size {tp}; give --ep-size {tp}{'' if tp > 1 else ' and more ranks'}"
            )
        return
    experts = layout.routed_experts(config)
    if experts is None:
        raise ConfigError(f"--ep-size {ep} needs a model with experts; this one has none, drop it")
    if chosen.shared_ranks and not config.get("n_shared_experts"):
        raise ConfigError(
            f"--ep-shared-expert-ranks {chosen.shared_ranks} needs a model with a shared expert; "
            "this one has none, drop the flag"
        )
    ExpertPlacement(spread, experts + args.get("ep_num_redundant_experts", 0), chosen.shared_ranks)


def _asked(chosen: EpSettings) -> str:
    """The first of our flags that means nothing without expert parallelism, as it was typed."""
    if chosen.shared_ranks:
        return f"--ep-shared-expert-ranks {chosen.shared_ranks}"
    if chosen.int8_wire:
        return "--ep-wire int8"
    return f"--ep-dispatch {chosen.dispatch}" if chosen.turns else ""
