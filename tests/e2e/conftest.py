"""Yardsticks of exactness, computed once a session."""

from __future__ import annotations

import pytest

from sglang_ascend.models import catalog
from tests.support.reference import Reference
from tests.support.traffic import random_traffic, send_for_answers


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
def mixed_traffic(tiny_deepseek_server):
    """200 requests of random lengths that arrive at random, with the answers of one rank."""
    traffic = random_traffic(200, seed=7)
    return traffic, send_for_answers(tiny_deepseek_server, traffic)
