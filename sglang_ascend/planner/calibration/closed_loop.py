"""Requests to a server over its own streaming HTTP, and when their tokens arrived.

Prediction and measurement of a server share this client: it takes time on the same cores.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import aiohttp
import orjson

REQUEST_TIMEOUT_S = 900.0
#: Low ids are control tokens in the vocabularies of the embedded models.
FIRST_PLAIN_TOKEN = 64


class LoadError(RuntimeError):
    """A server refused a request, or answered with another number of tokens than asked for."""


@dataclass(frozen=True)
class Dialect:
    """How a server is asked for tokens.

    Attributes:
        path: of the POST request.
        body: from prompt ids and the number of output tokens to the JSON body of a streaming,
            greedy request that does not stop early.
        tokens: from an event to the output tokens so far; None where the event does not say.
        ready: path that answers 200 once the server has done what it does at its start; None
            where an answer to a request says as much.
    """

    path: str
    body: Callable[[list[int], int], dict]
    tokens: Callable[[dict], int | None]
    ready: str | None = None


def _sglang_body(prompt: list[int], output: int) -> dict:
    sampling = {"max_new_tokens": output, "ignore_eos": True, "temperature": 0}
    return {"input_ids": prompt, "sampling_params": sampling, "stream": True}


def _sglang_tokens(event: dict) -> int | None:
    return event.get("meta_info", {}).get("completion_tokens")


# SGLang answers requests while it still runs some of its own to warm up.
SGLANG = Dialect("/generate", _sglang_body, _sglang_tokens, ready="/health")


@dataclass(frozen=True)
class Answer:
    """One request; seconds since it was sent.

    Attributes:
        first_s, last_s: when the first and the last token arrived.
        first_tokens: tokens in the first event; more than one where a server holds tokens back.
        tokens: output tokens.
    """

    first_s: float
    last_s: float
    first_tokens: int
    tokens: int

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first event; None where everything came at once."""
        after = self.tokens - self.first_tokens
        return (self.last_s - self.first_s) / after if after else None


@dataclass(frozen=True)
class Cell:
    """Requests at one concurrency, in a closed loop."""

    concurrency: int
    seconds: float
    answers: list[Answer]

    def as_json(self) -> dict:
        tokens = sum(answer.tokens for answer in self.answers)
        return {
            "concurrency": self.concurrency,
            "seconds": self.seconds,
            "tokens_per_s": tokens / self.seconds,
            "answers": [{**asdict(one), "tpot_s": one.tpot_s} for one in self.answers],
        }


def prompts(vocabulary: int, count: int, length: int, seed: int) -> list[list[int]]:
    """Random token ids: nothing that a prefix cache could know."""
    draw = random.Random(seed)
    first = min(FIRST_PLAIN_TOKEN, vocabulary // 2)
    return [[draw.randrange(first, vocabulary) for _ in range(length)] for _ in range(count)]


def measure(
    url: str, dialect: Dialect, asked: list[list[int]], output: int, concurrency: int
) -> Cell:
    """Send prompts, ``concurrency`` at a time, a new one when one is answered.

    Args:
        asked: prompts as token ids.
        output: tokens of every answer.

    Raises:
        LoadError: a request failed or its answer has another length.
    """
    return asyncio.run(_measure(url, dialect, asked, output, concurrency))


async def _measure(url, dialect, asked, output, concurrency) -> Cell:
    waiting, answers = iter(asked), []
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    # A connection for each request: some servers close an idle one just when it is used again.
    connector = aiohttp.TCPConnector(limit=concurrency, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def worker(own: Iterator[list[int]]) -> None:
            for prompt in own:
                answers.append(await _ask(session, url, dialect, prompt, output))

        began = time.perf_counter()
        try:
            await asyncio.gather(*(worker(waiting) for _ in range(concurrency)))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise LoadError(f"{type(error).__name__}: {error}") from error
        return Cell(concurrency, time.perf_counter() - began, answers)


async def _ask(session, url: str, dialect: Dialect, prompt: list[int], output: int) -> Answer:
    body = orjson.dumps(dialect.body(prompt, output))
    first_s = last_s = None
    first = count = 0
    sent = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    async with session.post(url + dialect.path, data=body, headers=headers) as response:
        if response.status != 200:
            said = " ".join((await response.text()).split())[:300]
            raise LoadError(f"HTTP {response.status} from {dialect.path}: {said}")
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter() - sent
            event = orjson.loads(line[6:])
            if "error" in event:
                raise LoadError(f"{dialect.path} answered with an error: {event['error']}")
            so_far = dialect.tokens(event)
            if so_far is None or so_far <= count:
                continue
            if first_s is None:
                first_s, first = now, so_far
            last_s, count = now, so_far
    if count != output:
        raise LoadError(f"{dialect.path} answered {count} tokens instead of {output}")
    return Answer(first_s, last_s, first, count)
