"""``--dp-policy``: whether our policy or SGLang's picks the rank of a request."""

from __future__ import annotations

import os

from sglang_ascend.errors import ConfigError

ENV = "SGLANG_ASCEND_DP_POLICY"
ASCEND, UPSTREAM = POLICIES = ("ascend", "upstream")


def resolve(given: str | None, load_balance_method: str) -> str:
    """The policy of a server, from both flags as the user gave them.

    Args:
        given: ``--dp-policy``, None where it was left open.
        load_balance_method: SGLang's ``--load-balance-method`` before SGLang resolves it; "auto"
            stands for "left open".

    Raises:
        ConfigError: both were given and contradict each other.
    """
    if load_balance_method == "auto":
        return given or ASCEND
    if given == ASCEND:
        raise ConfigError(
            f"--dp-policy {ASCEND} and --load-balance-method {load_balance_method} contradict each "
            "other; drop one of them"
        )
    return UPSTREAM


def current(environ=os.environ) -> str:
    """The policy of this process, as the launcher left it in the environment."""
    value = environ.get(ENV, ASCEND)
    if value not in POLICIES:
        raise ConfigError(f"{ENV} {value!r} is unknown; choose {' or '.join(POLICIES)}")
    return value
