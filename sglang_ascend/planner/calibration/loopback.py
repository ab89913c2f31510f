"""Time TCP over loopback, which joins the ranks of the reference device."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

_MESSAGE_BYTES = 8 << 20
_ROUND_TRIPS = 50


def timed() -> dict[str, Callable[[], float]]:
    """Runs that give the figures ``loopback/...`` of ``rates.Rates``."""
    payload = os.urandom(_MESSAGE_BYTES)
    return {
        "loopback/byte": lambda: _exchange(payload, 1) / _MESSAGE_BYTES,
        "loopback/latency": lambda: _exchange(b"x", _ROUND_TRIPS) / (2 * _ROUND_TRIPS),
    }


def _exchange(payload: bytes, times: int) -> float:
    """Seconds to send ``payload`` to another thread and wait for a byte back, several times."""

    def answer(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            for _ in range(times):
                left = len(payload)
                while left:
                    left -= len(peer.recv(min(left, 1 << 20)))
                peer.sendall(b"y")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        with socket.create_connection(listener.getsockname(), timeout=20) as own:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            begin = time.perf_counter()
            for _ in range(times):
                own.sendall(payload)
                own.recv(1)
            seconds = time.perf_counter() - begin
        thread.join(20)
    return seconds
