"""How many ranks there are and what each holds: the checks on TP, DP, EP and the model's shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sglang_ascend.errors import ConfigError

_SIZES = ("tp_size", "dp_size", "attn_dp_size", "pp_size", "ep_size", "nnodes")
EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")


@dataclass(frozen=True)
class Layout:
    """Ranks of one server.

    Attributes:
        tp: ranks that share one copy of the model's dense weights.
        attention_dp: groups among them, each with requests and a KV cache of its own.
        replicas: whole copies of the model.
    """

    tp: int
    attention_dp: int
    replicas: int

    @property
    def attention_tp(self) -> int:
        """Ranks that share one attention layer's heads."""
        return self.tp // self.attention_dp


def resolve(args: dict[str, Any]) -> Layout:
    """Read the sizes; ``--dp-size N --enable-dp-attention`` is SGLang's old ``--attn-dp-size N``.

    Raises:
        ConfigError: a size below one, or sizes that do not divide.
    """
    for name in _SIZES:
        if (value := args.get(name, 1)) < 1:
            raise ConfigError(f"{_flag(name)} {value} is too small; give 1 or more")
    tp, dp, attention_dp = (args.get(n, 1) for n in ("tp_size", "dp_size", "attn_dp_size"))
    flag = "--attn-dp-size"
    if args.get("enable_dp_attention") and attention_dp == 1:
        dp, attention_dp, flag = 1, dp, "--enable-dp-attention with --dp-size"
        if attention_dp == 1:
            raise ConfigError(
                "--enable-dp-attention has no effect with --dp-size 1; give --dp-size 2 or more, "
                "or drop it"
            )
    if attention_dp > 1 and dp > 1:
        raise ConfigError(
            f"--dp-size {dp} (replicas) and --attn-dp-size {attention_dp} contradict each other; "
            "give one of them"
        )
    if tp % attention_dp:
        raise ConfigError(
            f"{flag} {attention_dp} does not divide --tp-size {tp}; the attention groups share the "
            "TP ranks, so choose a divisor"
        )
    ranks = tp * args.get("pp_size", 1)
    if ranks % args.get("nnodes", 1):
        raise ConfigError(
            f"--tp-size {tp} times --pp-size {args['pp_size']} cannot be spread evenly over "
            f"--nnodes {args['nnodes']}; choose sizes that divide"
        )
    if not 0 <= args.get("node_rank", 0) < args.get("nnodes", 1):
        raise ConfigError(
            f"--node-rank {args['node_rank']} is outside 0..{args['nnodes'] - 1} of --nnodes "
            f"{args['nnodes']}"
        )
    if args.get("nnodes", 1) > 1 and not args.get("dist_init_addr"):
        raise ConfigError(
            "--nnodes above 1 needs --dist-init-addr HOST:PORT, the same on each node"
        )
    return Layout(tp=tp, attention_dp=attention_dp, replicas=dp)


def routed_experts(config: dict[str, Any]) -> int | None:
    """Routed experts of a MoE layer; None for a model without experts."""
    return next((config[k] for k in EXPERT_KEYS if isinstance(config.get(k), int)), None)


def check_model(layout: Layout, config: dict[str, Any], ep: int) -> None:
    """Raise ConfigError where the model's heads or experts cannot be split over the ranks.

    Args:
        config: the language model's part of ``config.json``.
        ep: ``--ep-size``.
    """
    heads = config.get("num_attention_heads")
    kv_heads = config.get("num_key_value_heads") or heads
    ranks = layout.attention_tp
    if isinstance(heads, int) and heads % ranks:
        raise ConfigError(
            f"{heads} attention heads cannot be split over {ranks} ranks (--tp-size {layout.tp}, "
            f"{layout.attention_dp} attention group(s)); choose a --tp-size that divides {heads}"
        )
    latent = config.get("kv_lora_rank")
    if not latent and isinstance(kv_heads, int) and kv_heads % ranks and ranks % kv_heads:
        raise ConfigError(
            f"{kv_heads} key/value heads can be neither split nor copied evenly over {ranks} "
            f"ranks; choose a --tp-size that divides {kv_heads} or is a multiple of it"
        )
    if ep > 1 and routed_experts(config) is None:
        raise ConfigError(f"--ep-size {ep} needs a model with experts; this one has none, drop it")
    if layout.tp % ep:
        raise ConfigError(
            f"--ep-size {ep} does not divide --tp-size {layout.tp}; expert groups share the TP "
            "ranks, so choose a divisor"
        )


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")
