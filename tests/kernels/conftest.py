"""What all kernel tests share: memory that holds NaN until it is written."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned_memory():
    """New tensors hold NaN, or the largest integer, as far as torch can fill them."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before)
