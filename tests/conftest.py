"""Shared fixtures. Servers live as long as the test session: a start costs more than a test."""

from __future__ import annotations

import os

import pytest

from sglang_ascend.plugin import torchvision_ops
from sglang_ascend.plugin.ledger import REPORT_DIR_ENV
from tests.support.server import RunningServer

# transformers imports torchvision, whose operators a CPU build of torch does not have.
torchvision_ops.declare_if_missing()
# Operators check the shapes and dtypes of their arguments in every test.
os.environ.setdefault("SGLANG_ASCEND_CHECK_OPS", "1")

#: Tokens of a request on `ep2_server`, prompt and answer.
CONTEXT_LENGTH = 2048


@pytest.fixture(scope="session")
def log_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("server_logs")


@pytest.fixture(scope="session")
def start_server(log_dir):
    """Start a server with the given flags; all of them are stopped when the session ends."""
    running: list[RunningServer] = []

    def start(*flags: str, env: dict[str, str] | None = None) -> RunningServer:
        server = RunningServer(*flags, log=log_dir / f"server-{len(running)}.log", env=env)
        running.append(server)
        return server.wait_until_ready()

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def smollm2_server(start_server):
    """The default server of the README, with metrics and small prefill chunks."""
    return start_server(
        "--enable-metrics",
        "--chunked-prefill-size",
        "256",
        "--max-total-tokens",
        "16384",
        "--tool-call-parser",
        "hermes",
    )


@pytest.fixture(scope="session")
def tiny_deepseek_server(start_server):
    """The embedded DeepSeek-V3 architecture at the Ascend default page size."""
    return start_server(
        "--model-path",
        "tiny-deepseek-v3",
        "--page-size",
        "128",
        "--chunked-prefill-size",
        "256",
        "--max-total-tokens",
        "16384",
    )


@pytest.fixture(scope="session")
def ledger_folder(tmp_path_factory):
    """Where the processes of `ep2_server` report their seams."""
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="session")
def ep2_server(start_server, ledger_folder):
    """Two DP-attention groups that share the experts, with every kind of process there is."""
    return start_server(
        *("--model-path", "tiny-deepseek-v3", "--page-size", "16", "--max-total-tokens", "4096"),
        *("--tp-size", "2", "--dp-size", "2", "--enable-dp-attention", "--ep-size", "2"),
        *("--ep-dispatch", "alternate", "--tokenizer-worker-num", "2", "--enable-metrics"),
        # Admits more requests than the KV pool can hold in the end.
        *("--context-length", str(CONTEXT_LENGTH), "--schedule-conservativeness", "0.05"),
        env={REPORT_DIR_ENV: str(ledger_folder)},
    )
