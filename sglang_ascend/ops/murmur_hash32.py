"""Counter-based random bits: one 32-bit hash for each (seed, position, column)."""

import torch

from sglang_ascend.ops.spec import INTS, ContractCase, Operator, OperatorSpec, TensorSpec, Tolerance

_MASK = 0xFFFFFFFF
# Number of bytes that are hashed: a 64-bit seed, a 32-bit position, a 32-bit column.
_KEY_BYTES = 16

SPEC = OperatorSpec(
    name="murmur_hash32",
    summary=(
        "MurmurHash3_x86_32 of the 16 bytes (seed, position, column), little endian, hash seed 0."
    ),
    source="MurmurHash3 by Austin Appleby, public domain",
    inputs={
        "seed": TensorSpec(("requests",), (torch.int64, torch.uint64)),
        "positions": TensorSpec(("requests",), INTS),
        "columns": TensorSpec(("columns",), INTS),
    },
    outputs={"hashed": TensorSpec(("requests", "columns"), (torch.uint32,))},
    tolerance=Tolerance("integer arithmetic: exact"),
)


def reference(seed: torch.Tensor, positions: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """seed, positions [requests], columns [columns] -> uint32 [requests, columns]."""
    seed = seed.view(torch.int64)
    state = torch.zeros_like(seed)
    for block in (seed & _MASK, (seed >> 32) & _MASK, positions.long() & _MASK):
        state = _mix(state, block)
    state = _mix(state[:, None], (columns.long() & _MASK)[None, :])
    return _finish(state ^ _KEY_BYTES).to(torch.uint32)


def npu(seed: torch.Tensor, positions: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Made of aten operators, which torch_npu has."""
    return reference(seed, positions, columns)


def _mix(state: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    block = _rotate_left(_multiply(block, 0xCC9E2D51), 15)
    block = _multiply(block, 0x1B873593)
    return (_rotate_left(state ^ block, 13) * 5 + 0xE6546B64) & _MASK


def _finish(state: torch.Tensor) -> torch.Tensor:
    state = _multiply(state ^ (state >> 16), 0x85EBCA6B)
    state = _multiply(state ^ (state >> 13), 0xC2B2AE35)
    return state ^ (state >> 16)


def _rotate_left(value: torch.Tensor, bits: int) -> torch.Tensor:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _multiply(value: torch.Tensor, factor: int) -> torch.Tensor:
    """Low 32 bits of the product. The int64 product may wrap, which leaves its low bits right."""
    return (value * factor) & _MASK


def _case(label: str, requests: int, columns: int) -> ContractCase:
    def build(device, dtype):
        return {
            "seed": torch.zeros(requests, dtype=torch.int64, device=device),
            "positions": torch.zeros(requests, dtype=torch.int64, device=device),
            "columns": torch.zeros(columns, dtype=torch.int64, device=device),
        }

    return ContractCase(label, build)


CONTRACT = (_case("DeepSeek-V3 vocabulary", 64, 129280),)

murmur_hash32 = Operator(SPEC, reference, npu, CONTRACT)
