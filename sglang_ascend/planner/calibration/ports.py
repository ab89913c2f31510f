"""Ports for the servers of benchmarks and tests."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on.

    SGLang takes further ports above it. They lie below those that Linux gives to outgoing
    connections, of which a server with four ranks opens many before it binds them all.
    """
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
