"""How many programs a kernel is launched with: one a core, each looping over its share."""

from __future__ import annotations

# The 24-core SKUs of 910B have 48 vector cores: there some stay idle, which costs less than the
# second round that more programs than cores would mean on the others. Source of both numbers:
# configs/hardware/a2_910b_280t.yaml and a3_910c.yaml.
VECTOR_CORES = {"910B": 40, "910C": 48}
CUBE_CORES = {"910B": 20, "910C": 24}


def vector_programs(target: str, pieces: int) -> int:
    """Programs of a vector kernel that has `pieces` independent pieces of work."""
    return min(pieces, VECTOR_CORES[target])


def cube_programs(target: str) -> int:
    """Programs of a matrix kernel that finds its tiles itself."""
    return CUBE_CORES[target]
