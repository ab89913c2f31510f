"""Which of SGLang's processes this is, so that only the seams which it needs are imported.

SGLang loads plugins inside the entry function of each process and tells them nothing; the entry
function's name on the call stack is the one thing that differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from sglang_ascend.seam import ProcessKind

_ENTRY_FUNCTIONS: dict[str, ProcessKind] = {
    "run_scheduler_process": "scheduler",
    "run_detokenizer_process": "detokenizer",
    "run_data_parallel_controller_process": "dp_controller",
}
#: Module through which uvicorn's tokenizer workers import the HTTP application.
TOKENIZER_WORKER_APP = "sglang_ascend.plugin.tokenizer_worker_app"


def of_entry_function(candidates: Iterable[object]) -> ProcessKind | None:
    """Kind of the process that runs one of these: the entry function among them decides."""
    for candidate in candidates:
        kind = _ENTRY_FUNCTIONS.get(getattr(candidate, "__name__", ""))
        if kind is not None:
            return kind
    return None


def detect() -> ProcessKind:
    """Kind of the calling process; the launcher's own process is the HTTP server."""
    frame = sys._getframe()
    while frame is not None:
        kind = _ENTRY_FUNCTIONS.get(frame.f_code.co_name)
        if kind is not None:
            return kind
        if frame.f_globals.get("__name__") == TOKENIZER_WORKER_APP:
            return "tokenizer_worker"
        frame = frame.f_back
    return "http_server"
