"""Each NPU call, run on the documented meaning of torch_npu's operators, equals its reference."""

import pytest
import torch

from sglang_ascend.ops import load_all
from sglang_ascend.ops.rope_tables import plain_cos_sin
from tests.ops import npu_semantics
from tests.ops.caches import PagedRequests

OPS = load_all()
BF16, F32 = torch.bfloat16, torch.float32


@pytest.fixture(scope="module", autouse=True)
def documented_npu():
    if hasattr(torch.ops.npu, "npu_swiglu"):
        pytest.skip("the real torch_npu is loaded in this process")
    with torch.library._scoped_library("npu", "FRAGMENT") as library:
        npu_semantics.define(library)
        yield


def _tables(dtype=BF16):
    # Both sides read the same 16-bit tables, as a server on the NPU does.
    return plain_cos_sin(64, 64).to(dtype)


def _equal(name, *arguments, written=(), real_rows=slice(None), **options):
    """Run both forms on copies; compare the results and the arguments `written` in place."""
    operator = OPS[name]

    def run(form):
        copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in arguments]
        results = form(*copies, **options)
        results = () if results is None else results
        return (
            *(results if isinstance(results, tuple) else (results,)),
            *(copies[i] for i in written),
        )

    actual, expected = run(operator.npu), run(operator.reference)
    assert len(actual) == len(expected)
    for got, wanted in zip(actual, expected):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        tolerance = getattr(operator.spec.tolerance, str(wanted.dtype).removeprefix("torch."), 0)
        torch.testing.assert_close(
            got[real_rows], wanted[real_rows], rtol=tolerance, atol=tolerance, equal_nan=True
        )


@pytest.mark.parametrize("dtype", [F32, BF16, torch.float16])
@pytest.mark.parametrize("tokens", [0, 5])
def test_norms_and_activation(dtype, tokens):
    torch.manual_seed(0)
    x, residual, weight = torch.randn(tokens, 64), torch.randn(tokens, 64), torch.randn(64)
    x, residual, weight = (tensor.to(dtype) for tensor in (x, residual, weight))
    _equal("rms_norm", x, weight, 1e-6)
    _equal("add_rms_norm", x, residual, weight, 1e-6)
    _equal("swiglu", x)


@pytest.mark.parametrize(("interleaved", "split"), [(False, False), (True, False), (True, True)])
def test_rope(interleaved, split):
    torch.manual_seed(0)
    query = torch.randn(7, 8, 70, dtype=BF16)[..., 6:]
    key = torch.randn(7, 2, 64, dtype=BF16)
    _equal("rope", query, key, _tables(), torch.randint(0, 64, (7,)), interleaved, split)


def test_kv_write():
    torch.manual_seed(0)
    key, value = torch.randn(5, 3, 64, dtype=BF16), torch.randn(5, 3, 32, dtype=BF16)
    caches = torch.zeros(4, 16, 3, 64, dtype=BF16), torch.zeros(4, 16, 3, 32, dtype=BF16)
    _equal("kv_write", key, value, *caches, torch.tensor([63, -1, 0, 17, -1]), written=(2, 3))


def test_mla_writes():
    torch.manual_seed(0)
    caches = torch.zeros(4, 16, 1, 512, dtype=BF16), torch.zeros(4, 16, 1, 64, dtype=BF16)
    slots = torch.tensor([63, -1, 0, 17, -1])
    kv = torch.randn(5, 576, dtype=BF16)
    _equal("mla_kv_write", kv[:, :512], kv[:, 512:], *caches, slots, written=(2, 3))
    weight, positions = torch.randn(512, dtype=BF16), torch.randint(0, 64, (5,))
    arguments = (kv, weight, _tables(), positions, *caches, slots, 1e-6)
    _equal("kv_rmsnorm_rope_write", *arguments, written=(4, 5))


def test_mla_prolog():
    torch.manual_seed(0)

    def weight(*shape):
        return (torch.randn(*shape) / shape[-2] ** 0.5).to(BF16)

    caches = torch.zeros(3, 128, 1, 512, dtype=BF16), torch.zeros(3, 128, 1, 64, dtype=BF16)
    arguments = (
        torch.randn(3, 6144, dtype=BF16),
        weight(6144, 1536),
        weight(1536, 2 * 192),
        weight(2, 128, 512),
        weight(6144, 576),
        torch.ones(1536, dtype=BF16),
        torch.ones(512, dtype=BF16),
        _tables(),
        torch.tensor([5, 0, 63]),
        *caches,
        torch.tensor([300, 0, 128]),
        1e-6,
    )
    _equal("mla_prolog", *arguments, written=(9, 10))


GQA_MIXES = [
    ([1, 1, 1], [1, 128, 300], 0),
    ([1, 0, 1], [7, 3, 129], 2),
    ([3, 1, 2], [3, 40, 129], 0),
    ([5, 33, 0, 1], [5, 140, 2, 1], 1),
    ([4, 4], [4, 200], 0),
    ([0, 0], [4, 0], 1),
]


@pytest.mark.parametrize(("query_lens", "kv_lens", "padding"), GQA_MIXES)
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("causal", [True, False])
def test_paged_gqa_attention(query_lens, kv_lens, padding, dim, causal):
    torch.manual_seed(0)
    requests = PagedRequests.make(128, kv_lens)
    keys, values = requests.cache(2, dim, BF16), requests.cache(2, dim, BF16)
    query = torch.randn(sum(query_lens) + padding, 4, dim, dtype=BF16)
    table, scale = requests.block_table, dim**-0.5
    _equal(
        "paged_gqa_attention",
        query,
        keys.cache,
        values.cache,
        table,
        query_lens,
        kv_lens,
        scale,
        causal,
    )


@pytest.mark.parametrize(
    ("query_lens", "kv_lens", "padding"),
    [*GQA_MIXES[:3], GQA_MIXES[5], ([1, 16, 2], [1, 20, 300], 1), ([5, 1], [5, 1], 0)],
)
def test_paged_mla_attention(query_lens, kv_lens, padding):
    torch.manual_seed(0)
    requests = PagedRequests.make(128, kv_lens)
    latents, ropes = requests.cache(1, 512, BF16), requests.cache(1, 64, BF16)
    tokens = sum(query_lens) + padding
    query_latent = torch.randn(tokens, 8, 512, dtype=BF16) / 4
    query_rope = torch.randn(tokens, 8, 64, dtype=BF16)
    cached = (latents.cache, ropes.cache, requests.block_table, query_lens, kv_lens)
    _equal("paged_mla_attention", query_latent, query_rope, *cached, 0.1)


@pytest.mark.parametrize(("query_lens", "kv_lens", "padding"), GQA_MIXES)
@pytest.mark.parametrize(("nope", "value"), [(32, 32), (128, 128)])
def test_mla_prefill_expanded(query_lens, kv_lens, padding, nope, value):
    torch.manual_seed(0)
    requests = PagedRequests.make(16, kv_lens)
    latents, ropes = requests.cache(1, 512, BF16), requests.cache(1, 64, BF16)
    tokens = sum(query_lens) + padding
    query_nope = torch.randn(tokens, 4, nope, dtype=BF16)
    query_rope = torch.randn(tokens, 4, 64, dtype=BF16)
    cached = (latents.cache, ropes.cache, requests.block_table, query_lens, kv_lens)
    w_uk = (torch.randn(4, nope, 512) / 512**0.5).to(BF16)
    w_uv = (torch.randn(4, 512, value) / 512**0.5).to(BF16)
    _equal("mla_prefill_expanded", query_nope, query_rope, *cached, w_uk, w_uv, 0.1)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_gates(renormalize, dtype):
    torch.manual_seed(0)
    logits, bias = torch.randn(9, 16).to(dtype), torch.randn(16)
    _equal("gate_topk_grouped_sigmoid", logits, bias, 4, 4, 2, renormalize, 2.5)
    # Distinct logits: which of two equal experts ranks first is not specified.
    logits = torch.stack([torch.randperm(16) for _ in range(9)]).to(dtype)
    _equal("gate_topk_softmax", logits, 4, renormalize)


@pytest.mark.parametrize(("start", "end"), [(0, 6), (2, 5), (5, 6)])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_expert_layer(start, end, dtype):
    """Rows that are not specified hold NaN on the NPU side and must not reach a token."""
    torch.manual_seed(0)
    x, ids = torch.randn(8, 16).to(dtype), torch.randint(-1, 6, (8, 3), dtype=torch.int32)
    permute, product = OPS["moe_permute"], OPS["grouped_matmul"]
    rows, index, counts = permute.npu(x, ids, start, end)
    wanted_rows, wanted_index, wanted_counts = permute.reference(x, ids, start, end)
    real = slice(0, int(counts.sum()))
    assert torch.equal(rows[real], wanted_rows[real])
    assert torch.equal(index, wanted_index) and torch.equal(counts, wanted_counts)
    weights = (torch.randn(end - start, 16, 8) / 4).to(dtype)
    _equal("grouped_matmul", rows, weights, counts, real_rows=real)
    out = product.npu(rows, weights, counts)
    _equal("moe_unpermute", out, index, torch.rand(8, 3))


@pytest.mark.parametrize("max_top_k", [50, None])
def test_sampling_filter(max_top_k):
    torch.manual_seed(0)
    logits = torch.stack([torch.randperm(500) for _ in range(6)]) / 50
    temperature = torch.tensor([1.0, 0.7, 1.0, 1.5, 1.0, 1.0])
    top_k = torch.tensor([1, 50, 50, 20, 50, 7])
    top_p = torch.tensor([1.0, 1.0, 0.5, 0.9, 0.05, 0.3])
    min_p = torch.tensor([0.0, 0.0, 0.0, 0.1, 0.0, 0.0])
    _equal("sampling_filter", logits, temperature, top_k, top_p, min_p, max_top_k)
    _equal("sampling_filter", logits, temperature, top_k, top_p, None, max_top_k)


def test_sample():
    torch.manual_seed(0)
    weights = torch.rand(8, 100) * (torch.rand(8, 100) < 0.3)
    weights[:, 3] = 0.5
    _equal("sample", weights, torch.arange(8), torch.arange(8))
    drawn = OPS["sample"].npu(weights.expand(8, -1), generator=torch.Generator().manual_seed(0))
    assert (weights.gather(1, drawn.long()[:, None]) > 0).all()
    _equal("murmur_hash32", torch.arange(4), torch.arange(4), torch.arange(9))
