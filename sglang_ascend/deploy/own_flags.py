"""Flags of this package that a room reads in a process which does not parse flags.

Each is one record of ``OWN_FLAGS``. The launcher takes them out of the command line before SGLang
parses it, and every process that it starts finds the value in the record's environment variable.
Setting that variable instead of the flag means the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass

from sglang_ascend.dp_controller import flag as dp_policy
from sglang_ascend.errors import ConfigError
from sglang_ascend.moe import settings as ep


@dataclass(frozen=True)
class OwnFlag:
    """One flag that takes a word or a number.

    Attributes:
        name: as typed, for example ``--dp-policy``.
        env: the environment variable that carries the value.
        help: what it does, for ``--help``; the default is appended.
        choices: accepted words, the first being the default; empty where ``check`` decides.
        default: the default where there are no ``choices``.
        metavar: how ``--help`` names the value where there are no ``choices``.
        check: raises ConfigError for a value that is not accepted.
    """

    name: str
    env: str
    help: str
    choices: tuple[str, ...] = ()
    default: str = ""
    metavar: str = ""
    check: Callable[[str], object] | None = None

    @property
    def fallback(self) -> str:
        """The value where nothing is given."""
        return self.choices[0] if self.choices else self.default

    @property
    def dest(self) -> str:
        """Attribute of the parsed namespace."""
        return self.name.removeprefix("--").replace("-", "_")


OWN_FLAGS: tuple[OwnFlag, ...] = (
    OwnFlag(
        name="--dp-policy",
        choices=dp_policy.POLICIES,
        env=dp_policy.ENV,
        help="how the DP controller picks a rank: ascend goes by predicted KV, waiting prefill and "
        "cached prefixes; upstream does what --load-balance-method says, which also applies "
        "wherever that flag is given",
    ),
    OwnFlag(
        name="--ep-dispatch",
        choices=ep.DISPATCH_CHOICES,
        env=ep.DISPATCH_ENV,
        help="how tokens reach their experts with --ep-size above 1: auto takes the transport with "
        "the shorter predicted time in each step, allgather is AllGather/ReduceScatter, dispatch "
        "is Dispatch/Combine, alternate takes turns, to compare both in the metrics",
    ),
    OwnFlag(
        name="--ep-wire",
        choices=ep.WIRE_CHOICES,
        env=ep.WIRE_ENV,
        help="activations on their way to the experts: model keeps the model's dtype, int8 "
        "quantises each token before it is sent",
    ),
    OwnFlag(
        name="--ep-shared-expert-ranks",
        env=ep.SHARED_RANKS_ENV,
        default="0",
        metavar="RANKS",
        check=ep.shared_ranks,
        help="so many ranks hold nothing but the shared expert, as on CloudMatrix 384; 0 runs it "
        "on every rank for its own tokens",
    ),
    OwnFlag(
        name="--ep-hardware",
        env=ep.HARDWARE_ENV,
        default=ep.AUTO_HARDWARE,
        metavar="NAME_OR_FILE",
        check=ep.hardware,
        help="constants from which --ep-dispatch auto predicts: a file of configs/hardware, or "
        "auto, which measures for a second or two at start on reference and goes by chip on npu",
    ),
)


def add_to(parser: argparse.ArgumentParser) -> None:
    """Declare every own flag; values are checked by ``given``, which can explain."""
    for flag in OWN_FLAGS:
        parser.add_argument(
            flag.name,
            default=None,
            metavar=f"{{{','.join(flag.choices)}}}" if flag.choices else flag.metavar,
            help=f"{flag.help} (default: {flag.fallback})",
        )


def given(own: argparse.Namespace, environ=os.environ) -> dict[str, str | None]:
    """Value by environment variable, None where neither the flag nor the variable was set.

    Raises:
        ConfigError: a value that is none of the flag's choices.
    """
    values = {}
    for flag in OWN_FLAGS:
        typed = getattr(own, flag.dest)
        value = typed if typed is not None else environ.get(flag.env)
        if value is not None:
            _check(flag, value, flag.name if typed is not None else flag.env)
        values[flag.env] = value
    return values


def _check(flag: OwnFlag, value: str, source: str) -> None:
    if flag.choices and value not in flag.choices:
        raise ConfigError(f"{source} {value!r} is unknown; choose {' or '.join(flag.choices)}")
    if flag.check is not None:
        try:
            flag.check(value)
        except ConfigError as error:
            raise ConfigError(f"{source} {value!r}: {error}") from None


def publish(values: dict[str, str | None], environ=os.environ) -> None:
    """Write each value, or its flag's default, where this process and its children find it."""
    for flag in OWN_FLAGS:
        environ[flag.env] = values[flag.env] or flag.fallback
