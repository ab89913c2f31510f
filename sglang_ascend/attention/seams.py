"""Seams of the attention room."""

from __future__ import annotations

from sglang_ascend.seam import Seam

ATTENTION_SEAMS: tuple[Seam, ...] = ()
