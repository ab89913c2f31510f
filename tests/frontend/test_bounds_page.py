"""The page is made from the table, and the table covers what SGLang takes from clients."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams

from sglang_ascend.frontend.bounds_page import page
from sglang_ascend.frontend.request_bounds import REQUEST_BOUNDS, SAMPLING_BOUNDS

#: Numbers that need no bound of ours, and why.
OTHERWISE = {
    "stop_str_max_len": "internal, refused by wire_types",
    "stop_regex_max_len": "internal, refused by wire_types",
    "routed_dp_rank": "SGLang compares it with the number of ranks",
    "data_parallel_rank": "as routed_dp_rank",
    "received_time": "a time stamp for metrics",
    "input_embeds": "checked by request_shape",
    "num_items_assigned": "set by SGLang, not read from a request",
    "max_dynamic_patch": "image tiles; the embedded models read no images",
    "min_dynamic_patch": "image tiles",
    "image_max_dynamic_patch": "image tiles",
    "video_max_dynamic_patch": "image tiles",
    "decision_layout": "refused from clients by SGLang",
    "custom_params": "checked by request_check for 64 bits",
}


def test_the_page_is_up_to_date():
    written = Path(__file__).parents[2] / "docs" / "request_bounds.md"
    assert written.read_text() == page(), "run python -m sglang_ascend.frontend.bounds_page"


def test_every_number_of_a_request_has_a_bound():
    bounded = {bound.field for bound in REQUEST_BOUNDS + SAMPLING_BOUNDS}
    fields = {field.name: field.type for field in msgspec.structs.fields(SamplingParams)}
    for kind in (GenerateReqInput, EmbeddingReqInput):
        fields |= {name: field.type for name, field in kind.__dataclass_fields__.items()}
    numeric = {name for name, kind in fields.items() if _mentions_number(kind)}
    assert numeric - bounded == set(OTHERWISE) & numeric
    assert bounded <= set(fields)


def _mentions_number(kind) -> bool:
    return kind in (int, float) or any(map(_mentions_number, get_args(kind)))
