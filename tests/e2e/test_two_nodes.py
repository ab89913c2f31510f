"""Two nodes, each a network namespace with a link of its own, serve as one.

Slow, and needs root and iproute2 to make the namespaces.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from benchmark.netns import Cluster
from sglang_ascend.comm.topology import Topology
from tests.support.reference import assert_same_tokens
from tests.support.server import RunningServer
from tests.support.traffic import random_traffic

pytestmark = pytest.mark.slow

_FLAGS = (
    *("--model-path", "tiny-deepseek-v3", "--max-total-tokens", "16384"),
    *("--tp-size", "2", "--dp-size", "2", "--enable-dp-attention", "--ep-size", "2"),
    *("--ep-dispatch", "alternate", "--nnodes", "2"),
)
#: By what two processes find in /dev/shm, SGLang decides whether they are on one node.
_OWN_SHARED_MEMORY = (
    *("unshare", "-m", "sh", "-c"),
    *('mount -t tmpfs tmpfs /dev/shm && exec "$@"', "node"),
)
#: Sends requests one after the other; runs where the server is.
_CLIENT = """
import json, sys, urllib.request
bodies, url = json.load(sys.stdin), sys.argv[1]
def ask(body):
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), kind)
    return json.load(urllib.request.urlopen(request, timeout=240))["output_ids"]
print(json.dumps([ask(body) for body in bodies]))
"""


def test_two_nodes(references, log_dir):
    reference = references("tiny-deepseek-v3")
    traffic = random_traffic(20, seed=3)
    bodies = [
        {
            "text": one.prompt,
            "routed_dp_rank": number % 2,
            "sampling_params": {"temperature": 0, "max_new_tokens": one.tokens, "ignore_eos": True},
        }
        for number, one in enumerate(traffic)
    ]
    with Cluster(Topology(2, 1), 200e6, 50e6) as cluster:
        meet = f"{cluster.address(0)}:29500"
        nodes = [
            RunningServer(
                *_FLAGS,
                *("--node-rank", str(rank), "--dist-init-addr", meet),
                *("--host", cluster.address(rank)),
                log=log_dir / f"node-{rank}.log",
                env={
                    "GLOO_SOCKET_IFNAME": cluster.interface,
                    "SGLANG_HOST_IP": cluster.address(rank),
                },
                within=[*cluster.command(rank), *_OWN_SHARED_MEMORY],
            )
            for rank in range(2)
        ]
        try:
            url = f"http://{cluster.address(0)}:{nodes[0].port}/generate"
            answers = ask(cluster.command(0), url, bodies, nodes[0])
        finally:
            for node in nodes:
                node.stop()
    for one, ids in zip(traffic, answers, strict=True):
        assert_same_tokens(one.prompt, ids, reference.greedy(one.prompt, one.tokens))


def ask(within, url, bodies, server) -> list[list[int]]:
    """Answers of the server, once it is up; bounded."""
    deadline = time.monotonic() + 300
    while True:
        done = subprocess.run(
            [*within, sys.executable, "-c", _CLIENT, url],
            input=json.dumps(bodies),
            capture_output=True,
            text=True,
            timeout=280,
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert time.monotonic() < deadline, f"{done.stderr}\n{server.tail()}"
        time.sleep(2)
