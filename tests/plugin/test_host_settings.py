"""What is set for the libraries of a server's processes, and that they read it."""

import os
import subprocess
import sys

import pytest

from sglang_ascend.plugin import host_settings


@pytest.mark.parametrize("own", [{"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_settings_of_the_user_win(own):
    environ = dict(own)
    host_settings.publish(environ)
    assert environ == {**own, "THP_MEM_ALLOC_ENABLE": "1"}


def test_idle_threads_of_openmp_go_to_sleep_soon():
    program = "from sglang_ascend.plugin import host_settings as h; h.publish(); import torch"
    hidden = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environ, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0
    assert "GOMP_SPINCOUNT = '5000'" in done.stderr


def test_prompts_of_many_lengths_do_not_fill_the_memory():
    program = """
import psutil, torch
from sglang_ascend.plugin import float_linear, host_settings
host_settings.bound_caches()
weight, x = torch.randn(1536, 576), torch.randn(1000, 576)
def grown(lengths):
    before = psutil.Process().memory_info().rss
    for rows in lengths:
        float_linear.many_rows(x[:rows], weight)
    return psutil.Process().memory_info().rss - before
grown(range(49, 149))
print(grown(range(149, 549)) >> 20)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) < 100  # 240 without a bound
