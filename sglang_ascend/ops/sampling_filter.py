"""Temperature, top-k, top-p and min-p: from logits to the weights that a token is drawn from."""

import torch

from sglang_ascend.ops.spec import (
    FLOATS,
    INTS,
    ContractCase,
    NpuLimit,
    Operator,
    OperatorError,
    OperatorSpec,
    TensorSpec,
    Tolerance,
)

# Number of best tokens that nearly always hold all survivors.
_HEAD = 1024

SPEC = OperatorSpec(
    name="sampling_filter",
    summary=(
        "softmax(logits / temperature) with the probabilities outside top-k, top-p, min-p set to 0."
    ),
    source="arXiv 1904.09751 (top-p), arXiv 2407.01082 (min-p); torch_npu npu_top_k_top_p",
    inputs={
        "logits": TensorSpec(("requests", "vocabulary"), FLOATS),
        "temperature": TensorSpec(("requests",), (torch.float32,)),
        "top_k": TensorSpec(("requests",), INTS),
        "top_p": TensorSpec(("requests",), (torch.float32,)),
        "min_p": TensorSpec(("requests",), (torch.float32,), optional=True),
    },
    outputs={"weights": TensorSpec(("requests", "vocabulary"), (torch.float32,))},
    npu_operators=("npu::npu_top_k_top_p",),
    npu_limits={"max_top_k": NpuLimit("npu_top_k_top_p", maximum=1024)},
    tolerance=Tolerance(
        "float32 exponentials and cumulative sums of another library; tokens that tie with the last"
        " kept one within rounding may be kept or not",
        float32=1e-6,
        bfloat16=1e-6,
        float16=1e-6,
    ),
    values=lambda arguments: check_arguments(arguments),
)


def check_arguments(arguments) -> None:
    top_k, temperature, bound = (arguments[name] for name in ("top_k", "temperature", "max_top_k"))
    if top_k.numel() == 0:
        return
    if int(top_k.min()) < 1:
        raise OperatorError(f"{SPEC.name}: top_k must be at least 1, got {int(top_k.min())}")
    if bound is not None and int(top_k.max()) > bound:
        raise OperatorError(
            f"{SPEC.name}: top_k must be at most max_top_k {bound}, got {int(top_k.max())}"
        )
    if float(temperature.min()) <= 0:
        raise OperatorError(
            f"{SPEC.name}: temperature must be positive, got {float(temperature.min())}"
        )


def reference(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor | None = None,
    max_top_k: int | None = None,
) -> torch.Tensor:
    """logits [requests, vocabulary], one temperature > 0, top_k >= 1, top_p and min_p per request.

    Returns float32 weights [requests, vocabulary], not renormalised. A token survives if fewer than
    top_k tokens and a probability of at most top_p come before it, best first, and if it has at
    least min_p times the best probability. The best token always survives. top_k at or above the
    vocabulary, top_p 1 and min_p 0 filter nothing. Probabilities are those of the whole vocabulary:
    top-k does not renormalise before top-p. max_top_k: host-side upper bound of top_k.
    """
    probabilities = (logits.float() / temperature.unsqueeze(1)).softmax(-1)
    vocabulary = probabilities.shape[1]
    filtered = (top_k < vocabulary) | (top_p < 1)
    if min_p is not None:
        filtered |= min_p > 0
    pending = filtered.nonzero().squeeze(1)
    if max_top_k is not None:
        vocabulary = min(vocabulary, max_top_k)
    # A sort of a whole vocabulary costs more than a step of a small model; few rows need one.
    for width in sorted({min(_HEAD, vocabulary), vocabulary}):
        rows = probabilities.index_select(0, pending)
        kept, complete = _keep_best(
            rows, width, top_k[pending], top_p[pending], None if min_p is None else min_p[pending]
        )
        probabilities.index_copy_(0, pending, torch.where(complete.unsqueeze(1), kept, rows))
        pending = pending[~complete]
        if pending.numel() == 0:
            break
    return probabilities


def _keep_best(probabilities, width, top_k, top_p, min_p) -> tuple[torch.Tensor, torch.Tensor]:
    """Filter rows by their `width` best tokens.

    Returns the filtered rows, and which of them are right: none of the other tokens would survive.
    """
    if width < probabilities.shape[1]:
        ranked, tokens = probabilities.topk(width, dim=-1)
    else:
        ranked, tokens = probabilities.sort(dim=-1, descending=True)
    mass = ranked.cumsum(-1)
    rank = torch.arange(width, device=ranked.device)
    dropped = (rank >= top_k.unsqueeze(1)) | (mass - ranked > top_p.unsqueeze(1))
    complete = (top_k <= width) | (mass[:, -1] > top_p)
    if min_p is not None:
        least = ranked[:, :1] * min_p.unsqueeze(1)
        dropped |= ranked < least
        complete |= ranked[:, -1] < least[:, 0]
    if width == probabilities.shape[1]:
        complete = torch.ones_like(complete)
    dropped[:, 0] = False
    kept = ranked.masked_fill_(dropped, 0.0)
    return torch.zeros_like(probabilities).scatter_(1, tokens, kept), complete


def npu(logits, temperature, top_k, top_p, min_p=None, max_top_k=None):
    scaled = logits.float() / temperature.unsqueeze(1)
    probabilities = scaled.softmax(-1)
    if max_top_k is None or max_top_k > SPEC.npu_limits["max_top_k"].maximum:
        # The fused operator has no larger k. A full sort on the device needs no look at the values.
        return _keep_best(probabilities, probabilities.shape[1], top_k, top_p, min_p)[0]
    # The fused operator renormalises between top-k and top-p: the threshold follows the mass.
    top_k = top_k.int()
    in_top_k = torch.ops.npu.npu_top_k_top_p(scaled, None, top_k).isfinite()
    mass = probabilities.masked_fill(~in_top_k, 0.0).sum(-1)
    kept = torch.ops.npu.npu_top_k_top_p(scaled, (top_p / mass).clamp_(max=1.0), top_k).isfinite()
    if min_p is not None:
        best = probabilities.amax(dim=-1, keepdim=True)
        kept &= probabilities >= best * min_p.unsqueeze(1)
    return probabilities.masked_fill_(~kept, 0.0)


def _case(label: str, requests: int, vocabulary: int, max_top_k: int | None) -> ContractCase:
    def build(device, dtype):
        def tensor(dtype):
            return torch.ones(requests, dtype=dtype, device=device)

        return {
            "logits": torch.zeros(requests, vocabulary, dtype=dtype, device=device),
            "temperature": tensor(torch.float32),
            "top_k": tensor(torch.int32),
            "top_p": tensor(torch.float32),
            "min_p": tensor(torch.float32),
            "max_top_k": max_top_k,
        }

    return ContractCase(label, build, torch.float32)


CONTRACT = (
    _case("SmolLM2-135M, any k", 4, 49152, None),
    _case("DeepSeek-V3, k up to 50", 64, 129280, 50),
)

sampling_filter = Operator(SPEC, reference, npu, CONTRACT)
