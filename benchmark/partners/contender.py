"""What the serving benchmark needs to know of a server that it measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from sglang_ascend.planner.calibration.closed_loop import Dialect
from sglang_ascend.planner.calibration.server_process import Launch


@dataclass(frozen=True)
class Job:
    """What a server shall serve.

    Attributes:
        model: name or path as given; names the model in results.
        folder: checkpoint in Hugging Face's layout, float32.
        port: to listen on, at 127.0.0.1.
        requests: at the same time, at most.
        context: tokens of a request, prompt and answer.
        scratch: an empty folder.
    """

    model: str
    folder: Path
    port: int
    requests: int
    context: int
    scratch: Path

    @property
    def cache_tokens(self) -> int:
        """Size of the KV cache that holds all requests, with some tokens to spare for each."""
        return self.requests * (self.context + 16)


class Contender(ABC):
    """A server, or one configuration of it.

    Attributes:
        name: in tables and results.
        family: what ``--partners`` calls it; ``ours`` for this package.
        number_format: of the weights.
        dialect: how it is asked.
    """

    name: str
    family: str
    number_format: str
    dialect: Dialect

    def missing(self) -> str | None:
        """What is not installed and how to get it, or None."""
        return None

    def unfit(self, job: Job) -> str | None:
        """Why it cannot serve this model, or None."""
        return None

    @abstractmethod
    def version(self) -> str:
        """Version of the server."""

    @abstractmethod
    def launch(self, job: Job) -> Launch:
        """The command; makes what it needs first."""
