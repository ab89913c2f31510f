"""The ``seed`` of a request, honoured whatever else is in its batch.

Upstream builds ``SamplingBatchInfo.sampling_seed`` only under deterministic inference, so that a
client's seed is silently ignored, and drops it when batches with and without seeds are merged.
Here every batch carries seeds; a request that gave none has ``NO_SEED``.
"""

from __future__ import annotations

import torch

NO_SEED = -1


def attach(info, cls, batch, vocab_size: int):
    """After ``SamplingBatchInfo.from_schedule_batch``: seeds [requests] int64 of the batch."""
    if info.sampling_seed is None:
        seeds = [request.sampling_params.sampling_seed for request in batch.reqs]
        info.sampling_seed = torch.tensor(
            [NO_SEED if seed is None else seed for seed in seeds], dtype=torch.int64
        ).to(batch.device, non_blocking=True)
    return info


def resolve(seeds: torch.Tensor | None) -> torch.Tensor | None:
    """Seeds for one step: fresh ones where a request gave none; None where nobody gave one.

    The look at the values is free on the CPU only; elsewhere all rows take the seeded way, which
    draws from the same distribution.
    """
    if seeds is None:
        return None
    unset = seeds == NO_SEED
    if seeds.device.type == "cpu" and bool(unset.all()):
        return None
    fresh = torch.randint(2**62, seeds.shape, dtype=torch.int64, device=seeds.device)
    return torch.where(unset, fresh, seeds)
