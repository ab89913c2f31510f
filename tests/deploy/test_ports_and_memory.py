"""Taken ports, and KV pools that do not fit."""

from __future__ import annotations

import socket

import psutil
import pytest

from sglang_ascend.deploy import memory, ports
from sglang_ascend.deploy.layout import Layout
from sglang_ascend.deploy.safetensors_header import TensorInfo
from sglang_ascend.errors import ConfigError
from tests.deploy.conftest import GQA_CONFIG

ONE_RANK = Layout(tp=1, attention_dp=1, replicas=1)


@pytest.mark.parametrize("taken_on", ["127.0.0.1", "0.0.0.0"])
def test_port_in_use(taken_on):
    with socket.create_server((taken_on, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is in use"):
            ports.check("127.0.0.1", port)
    ports.check("127.0.0.1", port)


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_port_out_of_range(port):
    with pytest.raises(ConfigError, match="out of range; choose one from 1 to 65535"):
        ports.check("127.0.0.1", port)


def test_host_of_another_machine():
    # 192.0.2.0/24 is reserved for documentation (RFC 5737): nobody's address.
    with pytest.raises(ConfigError, match="is no address of this machine"):
        ports.check("192.0.2.1", 31201)


def test_host_that_is_no_name():
    with pytest.raises(ConfigError, match="cannot be resolved"):
        ports.check("no such host", 31201)


@pytest.mark.parametrize(("tp", "expected"), [(1, 2), (2, 1), (6, 1)])
def test_kv_bytes_of_gqa(tp, expected):
    """3 layers, key and value, heads on the rank, 12 / 6 elements a head, 4 bytes each."""
    assert memory.kv_bytes_per_token(GQA_CONFIG, 4, tp) == 3 * 2 * expected * 2 * 4


def test_kv_bytes_of_deepseek_v3():
    """61 layers of a 512 + 64 element latent, 2 bytes each, on every rank."""
    config = {
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    }
    assert memory.kv_bytes_per_token(config, 2, 16) == 61 * 576 * 2


def test_kv_bytes_without_a_shape():
    assert memory.kv_bytes_per_token({"num_hidden_layers": 2}, 2, 1) is None


def test_weight_bytes_follow_the_serving_dtype():
    tensors = [TensorInfo("a", "BF16", (3, 5)), TensorInfo("b", "I64", (2,))]
    assert memory.weight_bytes(tensors, 4) == 15 * 4 + 2 * 8


def test_control_group_limits_what_is_free(tmp_path):
    assert 0 < memory.available_bytes(tmp_path) <= psutil.virtual_memory().total
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert memory.available_bytes(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes(tmp_path) > 600


def test_the_suggested_pool_is_the_largest_that_fits():
    available, weights, per_token = 1 << 20, 1 << 19, 1024
    with pytest.raises(ConfigError, match="not enough memory for the KV pool") as refused:
        memory.check(weights, per_token, ONE_RANK, {"max_total_tokens": 4096}, available)
    suggested = int(str(refused.value).split("--max-total-tokens to ")[1].split()[0])
    memory.check(weights, per_token, ONE_RANK, {"max_total_tokens": suggested}, available)
    with pytest.raises(ConfigError):
        memory.check(weights, per_token, ONE_RANK, {"max_total_tokens": suggested + 1}, available)


def test_ranks_share_the_machine():
    four = Layout(tp=2, attention_dp=1, replicas=2)
    memory.check(100, 10, ONE_RANK, {"max_total_tokens": 40}, 1000)
    with pytest.raises(ConfigError, match="on each of 4 rank"):
        memory.check(100, 10, four, {"max_total_tokens": 40}, 1000)


def test_weights_alone_do_not_fit():
    with pytest.raises(ConfigError, match="the weights need 2.00 GiB, 0.50 GiB of 1.00 GiB"):
        memory.check(2 << 30, 1, ONE_RANK, {"mem_fraction_static": 0.5}, 1 << 30)
