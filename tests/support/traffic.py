"""Mixed traffic: requests of random lengths that arrive at random, and a client that sends them."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.support.prompts import PROMPTS
from tests.support.reference import Greedy


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
    return [answer["output_ids"] for answer in _send(server, traffic, extra or {})]


def send_for_answers(server, traffic: list[Arrival]) -> list[Greedy]:
    """As ``send``, with the margin of each token, so that the answers can be a yardstick."""
    logprobs = {"return_logprob": True, "top_logprobs_num": 2}
    return [
        Greedy(answer["output_ids"], [best[0] - second[0] for best, second in _best_two(answer)])
        for answer in _send(server, traffic, logprobs)
    ]


def _best_two(answer: dict) -> list:
    return answer["meta_info"]["output_top_logprobs"]


def _send(server, traffic: list[Arrival], extra: dict) -> list[dict]:
    start = time.monotonic()

    def one(arrival: Arrival) -> dict:
        time.sleep(max(0.0, start + arrival.at_s - time.monotonic()))
        params = {"temperature": 0, "max_new_tokens": arrival.tokens, "ignore_eos": True}
        return server.generate({"text": arrival.prompt, "sampling_params": params, **extra})

    with ThreadPoolExecutor(len(traffic)) as pool:
        return list(pool.map(one, traffic))
