"""The cost model counts what a loop counts, and chooses what it should at the extremes."""

import pytest

from sglang_ascend.ops.mla_prefill_cost import (
    MlaDims,
    PrefillCost,
    absorbed_cost,
    choose_mla_prefill,
    expanded_cost,
)

DEEPSEEK_V3 = MlaDims(heads=128, kv_lora=512, rotary=64, nope=128, value=128)
TINY = MlaDims(heads=8, kv_lora=512, rotary=64, nope=32, value=32, element_bytes=4)


def _matmul(rows, inner, columns):
    return 2 * rows * inner * columns


@pytest.mark.parametrize("lens", [([4], [4]), ([3, 0, 1], [10, 7, 1]), ([1], [100]), ([], [])])
@pytest.mark.parametrize("dims", [DEEPSEEK_V3, TINY])
def test_operations_by_enumeration(lens, dims):
    absorbed = expanded = 0
    for queries, keys in zip(*lens):
        for _ in range(dims.heads):
            absorbed += _matmul(queries, dims.nope, dims.kv_lora)
            absorbed += _matmul(queries, dims.kv_lora, dims.value)
            if queries:
                expanded += _matmul(keys, dims.kv_lora, dims.nope + dims.value)
            for i in range(queries):
                seen = keys - queries + i + 1
                absorbed += _matmul(1, dims.kv_lora + dims.rotary, seen)
                absorbed += _matmul(1, seen, dims.kv_lora)
                expanded += _matmul(1, dims.nope + dims.rotary, seen)
                expanded += _matmul(1, seen, dims.value)
    assert absorbed_cost(*lens, dims).operations == absorbed
    assert expanded_cost(*lens, dims).operations == expanded


def test_bytes_of_one_decode_step():
    """One query over 1000 tokens: the latents dominate absorbed, the written keys expanded."""
    absorbed = absorbed_cost([1], [1000], DEEPSEEK_V3).bytes
    weights = 128 * 512 * 256 * 2
    latents = 1000 * 576 * 2
    queries = 128 * (128 + 512 + 64 + 512 + 64 + 512 + 128) * 2
    assert absorbed == weights + latents + queries
    written_and_read = 2 * 1000 * 128 * (128 + 64 + 128) * 2
    assert expanded_cost([1], [1000], DEEPSEEK_V3).bytes == (
        weights + latents + 128 * (128 + 64 + 128) * 2 + written_and_read
    )


def test_relative_time_is_a_roofline():
    assert PrefillCost(operations=100, bytes=10).relative_time(5) == 100
    assert PrefillCost(operations=100, bytes=10).relative_time(20) == 200


@pytest.mark.parametrize(
    ("query_lens", "kv_lens", "choice"),
    [
        ([1] * 8, [4096] * 8, "absorbed"),
        ([2], [8192], "absorbed"),
        ([4096], [4096], "expanded"),
        ([4096, 1], [4096, 1], "expanded"),
        ([], [], "absorbed"),
    ],
)
def test_choice(query_lens, kv_lens, choice):
    assert choose_mla_prefill(query_lens, kv_lens, DEEPSEEK_V3) == choice


def test_choice_changes_once_as_the_chunk_grows_over_a_fixed_prefix():
    choices = [
        choose_mla_prefill([chunk], [8192 + chunk], DEEPSEEK_V3) for chunk in range(1, 4096, 16)
    ]
    assert choices[0] == "absorbed" and choices[-1] == "expanded"
    assert sum(a != b for a, b in zip(choices, choices[1:])) == 1


def test_a_device_bound_on_absorbed_queries_wins():
    assert choose_mla_prefill([17], [8192], DEEPSEEK_V3) == "absorbed"
    assert choose_mla_prefill([17], [8192], DEEPSEEK_V3, max_absorbed_query_len=16) == "expanded"
    assert choose_mla_prefill([16], [8192], DEEPSEEK_V3, max_absorbed_query_len=16) == "absorbed"
