"""SGLang's processes as forks of the launcher, which has imported what each of them needs.

SGLang starts each process anew, and most of a start is then importing the same modules once more in
every one of them. A fork begins with the modules in place and shares their memory. Method of
``multiprocessing``'s start method "fork"; only what differs from a fresh process is put right here:

- a fork copies one thread, so a lock or an OpenMP pool that belongs to another thread is lost with
  it: where such a thread exists, the process is started anew, as SGLang does;
- signal handlers, SGLang's published configuration and the launcher's seams are inherited: they are
  taken back before the process's own function runs (``settle``);
- OpenMP read its number of threads when the launcher imported torch: it is set again.

The launcher stays the parent of its children, which SGLang's own ways to end them rely on.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import context, spawn
from pathlib import Path

from sglang_ascend.plugin import cpu_share, process_kind

logger = logging.getLogger(__name__)

_PRELOAD = os.environ.get("LD_PRELOAD")
#: ZeroMQ's threads hold nothing that a child uses: it makes a ZeroMQ context of its own.
_HARMLESS_THREADS = "ZMQbg/"


class ChildProcess(context.ForkProcess):
    """A process of SGLang: a fork where that is safe, else started anew."""

    @staticmethod
    def _Popen(process_obj):
        reason = reason_against_fork()
        if reason is None:
            return context.ForkProcess._Popen(process_obj)
        logger.info("a process is started anew instead of forked: %s", reason)
        return context.SpawnProcess._Popen(process_obj)

    def run(self) -> None:
        functions = (self._target, *self._args, *self._kwargs.values())
        settle(process_kind.of_entry_function(functions))
        super().run()


class ForkingContext(context.ForkContext):
    """What SGLang's modules know as ``multiprocessing``, or ``mp``."""

    Process = ChildProcess

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """SGLang's choice, for the processes that do not come from this context."""
        multiprocessing.set_start_method(method, force=force)


CONTEXT = ForkingContext()


def reason_against_fork() -> str | None:
    """Why a child cannot be a fork of this process now, or None where it can."""
    if os.environ.get("LD_PRELOAD") != _PRELOAD:
        return "LD_PRELOAD has changed"
    if os.fsdecode(spawn.get_executable()) != sys.executable:
        return "another executable was set"
    others = set(threading.enumerate()) - {threading.main_thread(), threading.current_thread()}
    if others:
        return f"thread {others.pop().name} is running"
    _end_threads_that_know_about_forks()
    known = {thread.native_id for thread in threading.enumerate()}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) in known:
            continue
        try:
            name = (task / "comm").read_text().strip()
        except OSError:
            continue  # it has just ended
        if not name.startswith(_HARMLESS_THREADS):
            return f"a thread that Python did not start is running ({name})"
    return None


def settle(kind: str | None) -> None:
    """Turn a fork of one kind of process into a process of ``kind``.

    Does nothing in a process that is no fork. ``kind`` None: a process without seams.

    Raises:
        SystemExit: a seam of this kind did not land.
    """
    from sglang_ascend.plugin import device_choice, install

    if not install.inherited():
        return
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _set_thread_number()
    from sglang.srt.runtime_context import reset_context

    reset_context()
    device = device_choice.current().device
    install.take_back(kind, device)
    if kind is not None:
        install.install(kind, device)


def _set_thread_number() -> None:
    import torch

    number = os.environ.get(cpu_share.THREADS_ENV, "").split(",")[0]
    if number.isdigit() and int(number) > 0:
        torch.set_num_threads(int(number))


def _end_threads_that_know_about_forks() -> None:
    """OpenBLAS ends its idle threads at every fork and starts new ones when it needs them."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
