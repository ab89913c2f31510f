"""Yardsticks of exactness, computed once a session."""

from __future__ import annotations

import pytest

from sglang_ascend.models import catalog
from tests.support.reference import Reference
from tests.support.traffic import random_traffic


@pytest.fixture(scope="session")
def references():
    """A model's `Reference` by name."""
    cache: dict[str, Reference] = {}

    def get(model: str) -> Reference:
        if model not in cache:
            cache[model] = Reference(catalog.resolve(model))
        return cache[model]

    return get


@pytest.fixture(scope="session")
def mixed_traffic(references):
    """200 requests of random lengths that arrive at random, each with transformers' answer."""
    reference = references("tiny-deepseek-v3")
    traffic = random_traffic(200, seed=7)
    return traffic, [reference.greedy(one.prompt, one.tokens) for one in traffic]
