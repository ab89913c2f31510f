"""Block tables and host lengths of each kind of step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from sglang_ascend.attention import metadata
from sglang_ascend.errors import ConfigError

SLOTS = torch.tensor(
    [[64, 65, 66, 67, 16, 17, 0, 0], [32, 33, 0, 0, 0, 0, 0, 0]], dtype=torch.int32
)


@pytest.fixture(scope="module")
def modes():
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    return ForwardMode


def step(mode, seq_lens, **fields):
    return SimpleNamespace(
        forward_mode=mode,
        seq_lens_cpu=torch.tensor(seq_lens),
        req_pool_indices=torch.arange(len(seq_lens)),
        **fields,
    )


def test_decode_reads_the_block_of_each_page(modes):
    built = metadata.build(step(modes.DECODE, [6, 2]), SLOTS, page_size=4)
    assert built.block_table[0].tolist() == [16, 4]
    assert built.block_table[1, 0] == 8
    assert (built.query_lens, built.kv_lens) == ([1, 1], [6, 2])


def test_page_size_one_is_the_slot_table(modes):
    built = metadata.build(step(modes.DECODE, [3, 2]), SLOTS, page_size=1)
    assert torch.equal(built.block_table, SLOTS[:, :3])


def test_prefill_with_prefix(modes):
    built = metadata.build(step(modes.EXTEND, [6, 2], extend_seq_lens_cpu=[2, 2]), SLOTS, 4)
    assert (built.query_lens, built.kv_lens) == ([2, 2], [6, 2])


def test_verify_adds_the_draft_to_the_cache(modes):
    draft = SimpleNamespace(topk=1, draft_token_num=2)
    built = metadata.build(step(modes.TARGET_VERIFY, [4, 1], spec_info=draft), SLOTS, 4)
    assert (built.query_lens, built.kv_lens) == ([2, 2], [6, 3])
    assert built.block_table.shape == (2, 2), "wide enough for the draft tokens"


def test_draft_trees_are_refused(modes):
    draft = SimpleNamespace(topk=4, draft_token_num=8)
    with pytest.raises(ConfigError, match="topk=4"):
        metadata.build(step(modes.TARGET_VERIFY, [4], spec_info=draft), SLOTS, 4)
