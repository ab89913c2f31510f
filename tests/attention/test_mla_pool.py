"""The split MLA pool: SGLang's pool interface over two buffers a layer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

LATENT, ROPE, LAYERS, PAGE = 6, 4, 3, 4


@pytest.fixture
def pool():
    from sglang_ascend.attention.mla_pool import SplitMlaPool

    return SplitMlaPool(
        size=16,
        page_size=PAGE,
        dtype=torch.float32,
        kv_lora_rank=LATENT,
        qk_rope_head_dim=ROPE,
        layer_num=LAYERS,
        device="cpu",
        enable_memory_saver=False,
    )


def rows(tokens, width, offset=0.0):
    return torch.arange(tokens * width, dtype=torch.float32).view(tokens, 1, width) + offset


def write(pool, layer, slots):
    latent, rope = rows(len(slots), LATENT, layer), rows(len(slots), ROPE, 100 + layer)
    pool.set_mla_kv_buffer(SimpleNamespace(layer_id=layer), torch.tensor(slots), latent, rope)
    return latent, rope


def test_what_is_written_is_read(pool):
    for layer in range(LAYERS):
        latent, rope = write(pool, layer, [5, 17, 8])
        got = pool.get_mla_kv_buffer(SimpleNamespace(layer_id=layer), torch.tensor([5, 17, 8]))
        assert torch.equal(got[0], latent) and torch.equal(got[1], rope)


def test_combined_rows_are_split(pool):
    combined = rows(2, LATENT + ROPE)
    pool.set_kv_buffer(SimpleNamespace(layer_id=1), torch.tensor([4, 9]), combined, None)
    latents, ropes = pool.latents_and_ropes(1)
    assert torch.equal(torch.cat([latents[[4, 9]], ropes[[4, 9]]], dim=-1), combined)


def test_a_retracted_request_comes_back_elsewhere(pool):
    saved = {layer: write(pool, layer, [4, 5, 6]) for layer in range(LAYERS)}
    copy = pool.get_cpu_copy(torch.tensor([4, 5, 6]))
    for buffer in pool.kv_buffer:
        buffer.fill_(float("nan"))
    pool.load_cpu_copy(copy, torch.tensor([9, 10, 12]))
    for layer, (latent, rope) in saved.items():
        latents, ropes = pool.latents_and_ropes(layer)
        assert torch.equal(latents[[9, 10, 12]], latent)
        assert torch.equal(ropes[[9, 10, 12]], rope)


def test_moved_rows(pool):
    latent, rope = write(pool, 2, [4, 5])
    pool.move_kv_cache(torch.tensor([13, 14]), torch.tensor([4, 5]))
    latents, ropes = pool.latents_and_ropes(2)
    assert torch.equal(latents[[13, 14]], latent) and torch.equal(ropes[[13, 14]], rope)


def test_transfer_infos_cover_every_byte(pool):
    pointers, sizes, page_bytes = pool.get_contiguous_buf_infos()
    assert len(set(pointers)) == 2 * LAYERS
    assert sum(sizes) == pool.get_kv_size_bytes() == LAYERS * 20 * (LATENT + ROPE) * 4
    assert set(page_bytes) == {PAGE * LATENT * 4, PAGE * ROPE * 4}


def test_the_caches_are_contiguous_as_the_npu_wants_them(pool):
    assert all(buffer.is_contiguous() for buffer in pool.latents_and_ropes(0))


def test_a_combined_buffer_is_refused(pool):
    with pytest.raises(NotImplementedError, match="latents_and_ropes"):
        pool.get_key_buffer(0)
