"""Real ranks over gloo: processes that stay for many test cases.

A case is a function of a `RankGroup` and of arguments that can be pickled. Each rank runs it at the
same time; what it returns or raises comes back to the test.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

CASE_TIMEOUT_S = 60


class RankPool:
    """`size` processes, made once; groups of the first n ranks for each n in `worlds`.

    worlds: rank groups to make, by number of ranks. timeout_s: of their collectives.
    """

    def __init__(self, size: int, worlds: Sequence[int], timeout_s: float = 30.0):
        self._size, self._worlds, self._timeout_s = size, tuple(worlds), timeout_s
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch.distributed", "tests.comm.rank_main"])
        self._folder = tempfile.TemporaryDirectory(prefix="ranks")
        store = os.path.join(self._folder.name, "store")
        self.processes, self.pipes = [], []
        for rank in range(self._size):
            ours, theirs = context.Pipe()
            settings = (rank, self._size, self._worlds, self._timeout_s, store)
            process = context.Process(
                target=_main, args=(*settings, theirs, list(sys.path)), daemon=True
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)

    def run(self, world: int, case: Callable, *arguments) -> list[Any]:
        """The results of `case(group, *arguments)` on the first `world` ranks.

        Raises:
            AssertionError: with the traceback of the first rank that failed. The ranks are then
                replaced, since they may be in different collectives.
        """
        for pipe in self.pipes[:world]:
            pipe.send((case, world, arguments))
        results, waiting = {}, dict(zip(self.pipes[:world], range(world)))
        while waiting:
            ready = wait(waiting, CASE_TIMEOUT_S)
            failure = "" if ready else f"ranks {list(waiting.values())}: no answer"
            for pipe in ready:
                rank = waiting.pop(pipe)
                ok, results[rank] = _receive(pipe)
                failure = failure if ok else f"rank {rank} of {world}:\n{results[rank]}"
            if failure:
                self.close()
                self._start()
                raise AssertionError(failure)
        return [results[rank] for rank in range(world)]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self._folder.cleanup()


def _receive(pipe: Connection) -> tuple[bool, Any]:
    try:
        return pipe.recv()
    except EOFError:
        return False, "its process is gone"


def _main(rank, size, worlds, timeout_s, store, pipe, path) -> None:
    sys.path[:] = path
    from tests.comm.rank_main import serve

    serve(rank, size, worlds, timeout_s, store, pipe)
