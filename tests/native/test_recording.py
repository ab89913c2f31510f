"""Recorded kernel calls, replayed on new inputs."""

import pytest
import torch

from sglang_ascend.native import attention, int8, library, matmul, rows
from sglang_ascend.native.recording import Recording

HEADS, DIM, HIDDEN = 4, 16, 64


class Layer:
    """One decoder layer out of kernels, with the views and copies that models have in between."""

    def __init__(self):
        self.embedding = torch.randn(50, HIDDEN)
        self.gain = torch.rand(HIDDEN)
        self.qkv = torch.randn(3 * HIDDEN, HIDDEN) / 8
        self.down = int8.pack(torch.randint(-128, 128, (HIDDEN, HIDDEN), dtype=torch.int8))
        self.down_scale = torch.rand(HIDDEN) / 1000
        self.table = torch.randn(128, DIM)
        self.keys, self.values = torch.zeros(2, 40, 1, HEADS, DIM)

    def __call__(self, ids, positions, slots, block_table, query_lens, kv_lens):
        x = torch.nn.functional.embedding(ids, self.embedding)
        fused = matmul.linear(rows.rms_norm(x, self.gain, 1e-5), self.qkv)
        q, k, v = (part.unflatten(1, (HEADS, DIM)) for part in fused.split(HIDDEN, dim=1))
        q, k = rows.rope(q, k, self.table, positions, False, False)
        rows.write_rows(self.keys, slots, k)
        rows.write_rows(self.values, slots, v)
        out = attention.paged_attention(
            (q,), (self.keys,), self.values, block_table, query_lens, kv_lens, 0.25, True
        )
        q8, scale = rows.dynamic_quant(out.flatten(1).t().contiguous().t().contiguous())
        y = int8.matmul(q8, scale, self.down, self.down_scale, torch.float32)
        return rows.rms_norm(y, self.gain, 1e-5, x)[0]


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 50, (3,), generator=generator)
    kv_lens = torch.randint(1, 12, (3,), generator=generator).tolist()
    table = torch.randperm(40, generator=generator)[:36].view(3, 12).int()
    positions = torch.tensor(kv_lens) - 1
    slots = table.gather(1, positions[:, None]).squeeze(1).long()
    return ids, positions, slots, table, kv_lens


def test_a_replay_on_new_inputs_is_a_run_on_new_inputs():
    torch.manual_seed(0)
    layer, ones = Layer(), [1, 1, 1]
    *tensors, kv_lens = inputs(0)
    with torch.inference_mode(), Recording() as recording:
        out = layer(*tensors, ones, kv_lens)
    assert recording.refused is None
    # The results of the step, and not the cache that it has views of.
    assert 0 < recording.nbytes < layer.keys.untyped_storage().nbytes()
    lens = attention.request_lens(ones, kv_lens)
    for seed in range(1, 6):
        *new, new_lens = inputs(seed)
        with torch.inference_mode():
            expected = layer(*new, ones, new_lens)
            cache = layer.keys.clone()
            for recorded, value in zip(tensors, new):
                recorded.copy_(value)
            lens[7:] = new_lens
            layer.keys[new[2]] = 0
            recording.erase()
            recording.replay()
        assert torch.equal(out, expected) and torch.equal(layer.keys, cache)
    assert library.tape is None


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.relu(),
        lambda x: x * int(x[0, 0].item()),
        lambda x: x.add_(1),
        lambda x: torch.zeros(2) + x.sum(),
        lambda x: x.new_zeros(2),
        lambda x: torch.randn(2),
    ],
)
def test_what_cannot_be_repeated_is_named(step):
    with torch.inference_mode(), Recording() as recording:
        step(torch.ones(2, 2))
    assert recording.refused.startswith("aten.")


def test_a_replay_reports_a_position_that_does_not_exist():
    x, positions = torch.randn(1, 1, 8), torch.zeros(1, dtype=torch.int64)
    with torch.inference_mode(), Recording() as recording:
        rows.rope(x, x, torch.randn(5, 8), positions, False, False)
    with torch.inference_mode():
        recording.replay()
        positions[0] = 5
        with pytest.raises(IndexError, match="rope"):
            recording.replay()
