"""Block hashes name prefixes, and the index holds and evicts them as a radix cache would."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ascend.dp_controller.block_hashes import block_tokens, chain
from sglang_ascend.dp_controller.prefix_index import PrefixIndex

tokens = st.lists(st.integers(0, 3), max_size=40)


@given(tokens, tokens)
def test_hashes_agree_exactly_as_far_as_the_blocks_do(left, right):
    block = 4
    a, b = chain(array("q", left), block), chain(array("q", right), block)
    assert (len(a), len(b)) == (len(left) // block, len(right) // block)
    for place, (x, y) in enumerate(zip(a, b)):
        end = (place + 1) * block
        assert (x == y) == (left[:end] == right[:end])


def test_a_namespace_separates_equal_prompts():
    prompt = array("q", range(8))
    assert not set(chain(prompt, 4, ("lora-a",))) & set(chain(prompt, 4, ("lora-b",)))


def test_blocks_are_whole_pages():
    assert [block_tokens(page) for page in (1, 16, 64, 96, 128)] == [64, 64, 64, 96, 128]


class RadixCache:
    """The yardstick: a tree whose least recently used leaf goes first, written for clarity."""

    def __init__(self, capacity):
        self.capacity, self.clock, self.last_use = capacity, 0, {}

    def insert(self, path):
        self.clock += 1
        for depth in range(1, len(path) + 1):
            self.last_use[tuple(path[:depth])] = self.clock
        while len(self.last_use) > self.capacity:
            parents = {node[:-1] for node in self.last_use}
            leaves = [node for node in self.last_use if node not in parents]
            del self.last_use[min(leaves, key=self.last_use.__getitem__)]

    def match(self, path):
        depth = 0
        while depth < len(path) and tuple(path[: depth + 1]) in self.last_use:
            depth += 1
        return depth


paths = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=40)


@settings(deadline=None)
@given(paths, paths, st.integers(1, 20))
def test_it_evicts_what_a_radix_cache_evicts(inserted, looked_up, capacity):
    index, cache = PrefixIndex(capacity), RadixCache(capacity)
    for path in inserted:
        index.insert(names(path))
        cache.insert(path)
        assert len(index) == len(cache.last_use) <= capacity
    for path in looked_up:
        assert index.match(names(path)) == cache.match(path)


def names(path):
    return [hash(tuple(path[:depth])) for depth in range(1, len(path) + 1)]


def test_generated_tokens_take_room():
    index = PrefixIndex(10)
    index.insert(range(4))
    index.insert(range(100, 104), generated_blocks=4)
    assert (index.match(range(4)), index.match(range(100, 104)), len(index)) == (2, 4, 10)


def test_a_smaller_pool_evicts_and_a_flush_empties():
    index = PrefixIndex(10)
    index.insert(range(8))
    index.resize(3)
    assert index.match(range(8)) == 3
    index.clear()
    assert index.match(range(8)) == len(index) == 0
