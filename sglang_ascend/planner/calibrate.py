"""Measure the machine that this runs on: matrix products, memory and loopback, in a few seconds.

The only file of the planner that measures anything.
"""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from sglang_ascend.comm.hardware import Hardware, load_hardware

_REPEATS = 7
_MATMUL = ((8, 576, 1536), (64, 576, 1536), (256, 576, 1536), (256, 1536, 576))
_READ_BYTES = 512 << 20  # as much as a small model: more than any cache holds
_MESSAGE_BYTES = 8 << 20


@dataclass(frozen=True)
class Measured:
    """Rates of one thread of this machine.

    Attributes:
        flops_per_s: of float32 matrix products of the sizes of small models.
        memory_bytes_per_s: read by a matrix-vector product that fits no cache.
        loopback_bytes_per_s, loopback_latency_s: of TCP.
        matmul_s, vector_s: of one call that has next to nothing to do.
    """

    flops_per_s: float
    memory_bytes_per_s: float
    loopback_bytes_per_s: float
    loopback_latency_s: float
    matmul_s: float
    vector_s: float


def measure(progress: Callable[[int, int], None] = lambda done, of: None) -> Measured:
    """Medians of repeats, interleaved so that a disturbance hits all of them."""
    import torch

    makers = (_matmul, _memory, _small_matmul, _small_vector, _loopback, _round_trip)
    runs = [make(torch) for make in makers]
    samples: list[list[float]] = [[] for _ in runs]
    with torch.inference_mode():
        for repeat in range(_REPEATS):
            for values, run in zip(samples, runs):
                values.append(run())
            progress(repeat + 1, _REPEATS)
    middle = [statistics.median(values) for values in samples]
    return Measured(middle[0], middle[1], middle[4], middle[5], middle[2], middle[3])


def hardware(measured: Measured) -> Hardware:
    """The reference device with the measured rates."""
    return load_hardware("reference_cpu").with_values(_values(measured), "measured by calibrate")


def hardware_yaml(measured: Measured) -> str:
    """The same as a file for ``configs/hardware``."""
    base = load_hardware("reference_cpu").constants
    constants = {
        key: {"value": float(f"{value:.4g}"), "unit": base[key].unit, "source": "measured"}
        for key, value in _values(measured).items()
    }
    return yaml.safe_dump({"base": "reference_cpu", "constants": constants}, sort_keys=False)


def text(measured: Measured) -> str:
    calls = f"{measured.matmul_s * 1e6:.1f} us (product), {measured.vector_s * 1e6:.1f} us (sum)"
    loopback = f"{measured.loopback_bytes_per_s / 1e9:.2f} GB/s"
    return (
        f"float32 matrix products {measured.flops_per_s / 1e9:.1f} GFLOPS, memory "
        f"{measured.memory_bytes_per_s / 1e9:.1f} GB/s, loopback {loopback} and "
        f"{measured.loopback_latency_s * 1e6:.0f} us; a call costs {calls}"
    )


def _values(measured: Measured) -> dict[str, float]:
    """In the units of the reference device's file."""
    return {
        "compute.fp32": measured.flops_per_s / 1e9,
        "compute.efficiency": 1.0,
        "compute.fixed_matmul": measured.matmul_s * 1e6,
        "compute.fixed_vector": measured.vector_s * 1e6,
        "memory.bandwidth": measured.memory_bytes_per_s / 1e9,
        "memory.efficiency": 1.0,
        "link.intra_node.bandwidth": measured.loopback_bytes_per_s / 1e9,
        "link.intra_node.latency": measured.loopback_latency_s * 1e6,
        "transfer.bandwidth": measured.loopback_bytes_per_s / 1e9,
    }


def _timed(run: Callable[[], object], least_s: float = 0.02) -> float:
    """Seconds of one call, over as many as take ``least_s``."""
    run()
    calls, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < least_s:
        run()
        calls += 1
    return passed / calls


def _matmul(torch) -> Callable[[], float]:
    pairs = [(torch.randn(m, k), torch.randn(n, k)) for m, k, n in _MATMUL[1:]]

    def rate() -> float:
        flops = sum(2.0 * a.shape[0] * b.numel() for a, b in pairs)
        seconds = sum(_timed(lambda a=a, b=b: torch.nn.functional.linear(a, b)) for a, b in pairs)
        return flops / seconds

    return rate


def _memory(torch) -> Callable[[], float]:
    weights = torch.ones(_READ_BYTES // 4 // 2048, 2048)
    row = torch.randn(1, 2048)
    return lambda: _READ_BYTES / _timed(lambda: torch.nn.functional.linear(row, weights), 0.05)


def _small_matmul(torch) -> Callable[[], float]:
    left, right = torch.randn(1, 64), torch.randn(64, 64)
    return lambda: _timed(lambda: torch.nn.functional.linear(left, right))


def _small_vector(torch) -> Callable[[], float]:
    small = torch.randn(1, 64)
    return lambda: _timed(lambda: small * small)


def _loopback(torch) -> Callable[[], float]:
    payload = os.urandom(_MESSAGE_BYTES)

    def rate() -> float:
        begin = time.perf_counter()
        _exchange(payload, 1)
        return _MESSAGE_BYTES / (time.perf_counter() - begin)

    return rate


def _round_trip(torch) -> Callable[[], float]:
    def half() -> float:
        begin = time.perf_counter()
        _exchange(b"x", 50)
        return (time.perf_counter() - begin) / 100

    return half


def _exchange(payload: bytes, times: int) -> None:
    """Send ``payload`` to another thread over TCP and wait for a byte back, several times."""

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
            for _ in range(times):
                own.sendall(payload)
                own.recv(1)
        thread.join(20)
