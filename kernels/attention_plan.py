"""How the rows and keys of ragged requests are cut into tasks, on the host.

A row is a query of one head, or of one of the heads that share their keys. The rows of a request
follow each other: row = query * rows_per_token + head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

# Columns of the task table: request, first row, rows, first key, end of the keys, slot of the
# partial result; the rest pads a row to 32 bytes.
TASK_COLUMNS = 8
# Columns of the tile table: first slot, slots, first row, rows.
TILE_COLUMNS = 4
# A stretch is not cut shorter than this: starting a program costs about as much as a page or two.
LEAST_PAGES = 4


@dataclass(frozen=True)
class AttentionPlan:
    """Tables of one call, int32.

    tasks [tasks, 8]: one program each. visible [rows]: how many leading keys of its request a row
    sees. tiles [tiles, 4]: where the partial results of a tile lie, for `split_combine`.
    split: whether a tile has more than one task, and results therefore have to be combined.
    """

    tasks: torch.Tensor
    visible: torch.Tensor
    tiles: torch.Tensor
    split: bool

    @property
    def slots(self) -> int:
        return self.tasks.shape[0]


def plan_attention(
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    rows_per_token: int,
    rows_per_tile: int,
    programs: int,
    page: int,
    device: torch.device,
    causal: bool = True,
) -> AttentionPlan:
    """Cut a call into tasks of whole pages so that about `programs` of them have work.

    query_lens, kv_lens: new tokens, and tokens in the cache, of each request, with
    0 <= query_len <= kv_len. programs: how many tasks the chip runs at a time; 0 never cuts the
    keys of a tile. All layers of a step ask for the same plan.
    """
    return _plan(
        tuple(query_lens),
        tuple(kv_lens),
        rows_per_token,
        rows_per_tile,
        programs,
        page,
        device,
        causal,
    )


@lru_cache(maxsize=16)
def _plan(query_lens, kv_lens, rows_per_token, rows_per_tile, programs, page, device, causal):
    tiles = [
        tile
        for request in range(len(query_lens))
        for tile in _tiles(request, query_lens, kv_lens, rows_per_token, rows_per_tile, causal)
    ]
    pages = [-(-end // page) for *_, end in tiles]
    stretch = max(LEAST_PAGES, -(-sum(pages) // programs)) if programs else max(pages, default=1)
    tasks, tile_rows = [], []
    for (request, first, count, end), tile_pages in zip(tiles, pages):
        cuts = -(-tile_pages // stretch)
        tile_rows.append([len(tasks), cuts, first, count])
        for cut in range(cuts):
            begin = cut * tile_pages // cuts * page
            stop = min((cut + 1) * tile_pages // cuts * page, end)
            tasks.append([request, first, count, begin, stop, len(tasks), 0, 0])
    return AttentionPlan(
        tasks=_table(tasks, TASK_COLUMNS, device),
        visible=_visible(query_lens, kv_lens, rows_per_token, causal).to(device),
        tiles=_table(tile_rows, TILE_COLUMNS, device),
        split=len(tasks) > len(tiles),
    )


def tile_count(query_lens: Sequence[int], rows_per_token: int, rows_per_tile: int) -> int:
    """Number of tiles of a call; a tile never has rows of two requests."""
    return sum(-(-length * rows_per_token // rows_per_tile) for length in query_lens)


def _tiles(request, query_lens, kv_lens, rows_per_token, rows_per_tile, causal):
    """(request, first row, rows, end of the keys that one of the rows sees) of each tile."""
    start = sum(query_lens[:request]) * rows_per_token
    rows = query_lens[request] * rows_per_token
    hidden = kv_lens[request] - query_lens[request]
    for first in range(0, rows, rows_per_tile):
        count = min(rows_per_tile, rows - first)
        last_query = (first + count - 1) // rows_per_token
        end = hidden + last_query + 1 if causal else kv_lens[request]
        yield request, start + first, count, end


def _visible(query_lens, kv_lens, rows_per_token: int, causal: bool) -> torch.Tensor:
    parts = [
        torch.arange(kv - queries + 1, kv + 1) if causal else torch.full((queries,), kv)
        for queries, kv in zip(query_lens, kv_lens)
    ]
    visible = torch.cat(parts) if parts else torch.empty(0)
    return visible.repeat_interleave(rows_per_token).int()


def _table(rows: list[list[int]], columns: int, device: torch.device) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, columns).to(device)
