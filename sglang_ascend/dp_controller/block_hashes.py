"""Names of a prompt's prefixes: one chained hash a block of tokens."""

from __future__ import annotations

from array import array
from collections.abc import Hashable

#: Tokens a block, at least: fine enough for a short system prompt, coarse enough that a prompt of
#: 128K tokens has 2048 of them.
MIN_BLOCK_TOKENS = 64


def block_tokens(page_size: int) -> int:
    """Smallest multiple of the cache's page that is no shorter than ``MIN_BLOCK_TOKENS``."""
    return -(-MIN_BLOCK_TOKENS // page_size) * page_size


def chain(tokens: array, block: int, namespace: Hashable = None) -> list[int]:
    """Hash of every whole block together with all tokens before it.

    Python's hash of bytes is keyed by a secret of the process, so that no client can write two
    prompts that collide; a collision would cost a cache hit and never an answer.

    Args:
        tokens: token ids of the prompt, one machine word each.
        block: tokens a block.
        namespace: whatever else separates cache entries, such as a LoRA adapter.

    Returns:
        one hash a whole block; a rest shorter than a block has none.
    """
    width = block * tokens.itemsize
    content = memoryview(tokens).cast("B")
    value, hashes = hash(namespace), []
    for start in range(0, len(content) - width + 1, width):
        value = hash((value, content[start : start + width].tobytes()))
        hashes.append(value)
    return hashes
