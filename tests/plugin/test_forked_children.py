"""Children forked from a process with seams in force, and those that must not be forked."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest

from sglang_ascend.plugin import forked_children, process_kind

#: A launcher with a seam's worth of state, whose scheduler says what it finds.
LAUNCHER = """
import json, os, signal, sys
from sglang_ascend.plugin import device_choice
device_choice.publish(device_choice.choose("reference"))
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.entrypoints import engine
from sglang_ascend.plugin import ledger

def run_scheduler_process(pipe):
    import torch
    from sglang.srt.managers import scheduler, tokenizer_manager
    load_plugins()
    pipe.send(
        {
            "parent": os.getppid(),
            "environ": os.environ.get("SET_AFTER_THE_IMPORTS"),
            "threads": torch.get_num_threads(),
            "quit": signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL,
            "interrupt": signal.getsignal(signal.SIGINT) == signal.default_int_handler,
            "tokenizer hooks": hasattr(
                tokenizer_manager.TokenizerManager.generate_request, "__wrapped__"
            ),
            "applied": [
                row.seam for row in ledger.statuses("scheduler", "reference")
                if row.status == "applied"
            ],
            "failed": [
                row.detail for row in ledger.statuses("scheduler", "reference")
                if row.status == "FAILED"
            ],
            "event loops": scheduler.dispatch_event_loop.__wrapped__.__module__,
        }
    )

signal.signal(signal.SIGQUIT, lambda *_: None)
os.environ["SET_AFTER_THE_IMPORTS"] = "yes"
os.environ["OMP_NUM_THREADS"] = "3"
reader, writer = engine.mp.Pipe(duplex=False)
child = engine.mp.Process(target=run_scheduler_process, args=(writer,))
child.start()
found = reader.recv()
child.join()
found["own"] = os.getpid()
found["exit code"] = child.exitcode
killed = engine.mp.Process(target=lambda: os.kill(os.getpid(), signal.SIGKILL))
killed.start()
killed.join()
found["killed"] = killed.exitcode
found["kept"] = hasattr(engine.TokenizerManager.generate_request, "__wrapped__")
found["needed"] = [seam.name for seam in ledger.needed("scheduler", "reference")]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():

    out = subprocess.run(
        [sys.executable, "-c", LAUNCHER], capture_output=True, text=True, timeout=300
    )
    assert out.returncode == 0, out.stderr[-2000:]
    return json.loads(out.stdout.splitlines()[-1])


def test_a_forked_scheduler_has_its_seams_and_no_others(found):
    assert found["failed"] == []
    assert sorted(found["applied"]) == sorted(found["needed"])
    assert found["event loops"].startswith("sglang.srt.")  # hooked once, not twice
    assert not found["tokenizer hooks"] and found["kept"]


def test_a_forked_scheduler_is_a_child_with_todays_environment(found):
    assert found["parent"] == found["own"]
    assert found["exit code"] == 0 and found["killed"] == -signal.SIGKILL
    assert found["environ"] == "yes" and found["threads"] == 3


def test_a_forked_scheduler_has_no_signal_handlers_of_its_parent(found):
    assert found["quit"] and found["interrupt"]


def test_a_running_python_thread_stands_against_a_fork():
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="the-writer")
    thread.start()
    try:
        # Another test of this session may have left a thread as well.
        assert forked_children.reason_against_fork().startswith("thread ")
    finally:
        end.set()
        thread.join()


def _in_new_process(code: str) -> str:
    code = "from sglang_ascend.plugin.forked_children import reason_against_fork\n" + code
    environ = {**os.environ, "OMP_NUM_THREADS": "2"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environ
    )
    assert out.returncode == 0, out.stderr
    return out.stdout.strip()


def test_an_openmp_pool_stands_against_a_fork_and_openblas_does_not():
    """OpenBLAS, which comes with NumPy, has threads from its import on; torch's pool, once used."""
    lines = _in_new_process(
        "import numpy, torch\n"
        "numpy.ones((300, 300)) @ numpy.ones((300, 300))\n"
        "print(reason_against_fork())\n"
        "torch.ones(4_000_000).exp().sum()\n"
        "print(reason_against_fork())\n"
    ).splitlines()
    assert lines[0] == "None"
    assert "a thread that Python did not start" in lines[1]


def test_what_only_a_new_program_can_take_up_stands_against_a_fork(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "something.so")
    assert "LD_PRELOAD" in forked_children.reason_against_fork()
    monkeypatch.undo()
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", b"/usr/bin/numactl-wrapper")
    assert "executable" in forked_children.reason_against_fork()


def test_the_entry_function_decides_the_kind():
    def run_detokenizer_process():
        pass

    def other():
        pass

    kind = process_kind.of_entry_function
    assert kind((other, 3, run_detokenizer_process)) == "detokenizer"
    assert kind((other, None)) is None


def test_a_start_method_for_other_processes_is_passed_on():
    before = multiprocessing.get_start_method()
    try:
        forked_children.CONTEXT.set_start_method("forkserver", force=True)
        assert multiprocessing.get_start_method() == "forkserver"
    finally:
        multiprocessing.set_start_method(before, force=True)
