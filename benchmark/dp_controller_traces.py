"""Request traces for ``benchmark.dp_controller``: arrival times, lengths and prefix hashes."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sglang_ascend.errors import ConfigError

#: Tokens a prefix block of the Mooncake trace.
BLOCK_TOKENS = 512


@dataclass(frozen=True)
class TraceRequest:
    """One request; a block that occurs in two of them is a shared prefix.

    Attributes:
        arrival_s: since the trace began.
        blocks: names of its whole prompt blocks of ``BLOCK_TOKENS``.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


def load(path: Path) -> list[TraceRequest]:
    """Read a Mooncake (``.jsonl``) or an Azure (``.csv``) trace, sorted by arrival.

    Raises:
        ConfigError: the file is missing or of neither kind.
    """
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; give a trace file, or none for the sample")
    readers = {".jsonl": _mooncake, ".csv": _azure}
    if path.suffix not in readers:
        raise ConfigError(f"{path} is neither .jsonl (Mooncake) nor .csv (Azure)")
    try:
        requests = readers[path.suffix](path)
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{path} is no trace that is known here: {error}") from error
    if not requests:
        raise ConfigError(f"{path} holds no request")
    return sorted(requests, key=lambda request: request.arrival_s)


def _mooncake(path: Path) -> list[TraceRequest]:
    rows = (json.loads(line) for line in path.read_text().splitlines() if line)
    return [
        TraceRequest(
            row["timestamp"] / 1000,
            row["input_length"],
            max(1, row["output_length"]),
            tuple(row["hash_ids"][: row["input_length"] // BLOCK_TOKENS]),
        )
        for row in rows
    ]


def _azure(path: Path) -> list[TraceRequest]:
    """Prompts of this trace are not known to share anything: every block is one of its own."""
    requests, named, start = [], 0, None
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            # Seven digits of a second; Python reads six.
            when = datetime.fromisoformat(row["TIMESTAMP"][:26])
            start = start or when
            prompt = max(1, int(row["ContextTokens"]))
            blocks = tuple(range(named, named := named + prompt // BLOCK_TOKENS))
            output = max(1, int(row["GeneratedTokens"]))
            requests.append(TraceRequest((when - start).total_seconds(), prompt, output, blocks))
    return requests


def at_speed(requests: list[TraceRequest], speed: float) -> list[TraceRequest]:
    """The same requests, arriving ``speed`` times as fast.

    Requests of one time stamp (Mooncake's are whole multiples of three seconds) are spread evenly
    until the next, as they cannot have come at once.
    """
    spread, first = [], 0
    for index, request in enumerate(requests):
        if index == len(requests) - 1 or requests[index + 1].arrival_s > request.arrival_s:
            group = requests[first : index + 1]
            last = index == len(requests) - 1
            gap = 0.0 if last else requests[index + 1].arrival_s - request.arrival_s
            for place, member in enumerate(group):
                arrival = member.arrival_s + gap * place / len(group)
                spread.append(replace(member, arrival_s=arrival / speed))
            first = index + 1
    return spread
