"""Shared fixtures. Servers live as long as the test session: a start costs more than a test."""

from __future__ import annotations

import os

import pytest

from sglang_ascend.plugin import torchvision_ops
from tests.support.server import RunningServer

# transformers imports torchvision, whose operators a CPU build of torch does not have.
torchvision_ops.declare_if_missing()
# Operators check the shapes and dtypes of their arguments in every test.
os.environ.setdefault("SGLANG_ASCEND_CHECK_OPS", "1")


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
