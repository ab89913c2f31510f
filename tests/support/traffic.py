"""Mixed traffic: requests of random lengths that arrive at random, and a client that sends them."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.support.prompts import PROMPTS


@dataclass(frozen=True)
class Arrival:
    """One request: when it is sent (s after the start), its prompt and its number of tokens."""

    at_s: float
    prompt: str
    tokens: int


def random_traffic(count: int, seed: int, seconds: float = 4.0) -> list[Arrival]:
    """Prompts cut out of a text at random, a third with a shared prefix, and 1 to 24 tokens each.

    A few are long enough to be prefilled in several chunks while others decode.
    """
    draw = random.Random(seed)
    words = " ".join(PROMPTS).split(" ")
    heads = [" ".join(words[start : start + 40]) for start in (0, 90, 170)]
    arrivals = []
    for _ in range(count):
        length = draw.choice((1, 2, 5, 9, 17, 40, 80, 200))
        start = draw.randrange(len(words) - length)
        prompt = " ".join(words[start : start + length]) or "A"
        if draw.random() < 1 / 3:
            prompt = f"{draw.choice(heads)} {prompt}"
        arrivals.append(Arrival(draw.uniform(0, seconds), prompt, draw.randint(1, 24)))
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


def send(server, traffic: list[Arrival], extra: dict | None = None) -> list[list[int]]:
    """Send every request at its time; the output ids in the order of the traffic."""
    start = time.monotonic()

    def one(arrival: Arrival) -> list[int]:
        time.sleep(max(0.0, start + arrival.at_s - time.monotonic()))
        params = {"temperature": 0, "max_new_tokens": arrival.tokens, "ignore_eos": True}
        body = {"text": arrival.prompt, "sampling_params": params, **(extra or {})}
        return server.generate(body)["output_ids"]

    with ThreadPoolExecutor(len(traffic)) as pool:
        return list(pool.map(one, traffic))
