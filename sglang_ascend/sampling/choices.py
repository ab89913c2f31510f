"""Different answers for ``n`` > 1 with a seed, and the same ones again for the same seed.

Upstream: ``TokenizerManager._send_one_request(self, tokenized_obj)``. The ``n`` copies of a request
share one ``SamplingParams``, which is serialised as each copy is sent: moving its seed on after a
copy has left gives the next one a seed of its own.
"""

from __future__ import annotations

#: Knuth's MMIX linear congruential generator, kept to what an int64 seed may be.
_MULTIPLIER, _INCREMENT, _MODULUS = 6364136223846793005, 1442695040888963407, 2**62


def next_seed(seed: int) -> int:
    """The seed of the answer after the one that used ``seed``."""
    return (seed * _MULTIPLIER + _INCREMENT) % _MODULUS


async def send_with_own_seed(original, manager, request):
    """Around the sending of one copy of a request; the first copy keeps the client's seed."""
    result = await original(manager, request)
    params = getattr(request, "sampling_params", None)
    if params is not None and params.n > 1 and params.sampling_seed is not None:
        params.sampling_seed = next_seed(params.sampling_seed)
    return result
