"""Prefill and decode steps of tiny-deepseek-v3 by SGLang's model runner on device npu; a process.

Prints what the npu platform answers, the greedy tokens, and the torch_npu operators that ran.
"""

from __future__ import annotations

import json
import os
from array import array

# Copies are then done when torch_npu returns.
os.environ["TASK_QUEUE_ENABLE"] = "0"
import torch  # noqa: F401  before torch_npu
import torch_npu  # noqa: F401

from sglang_ascend.contract import api
from sglang_ascend.models import catalog
from tests.contract.decode_steps_prompts import NEW_TOKENS, PROMPTS
from tests.contract.npu_on_cpu import NpuOnCpu, implement_npu_operators


def run_scheduler_process() -> dict:
    """Named as SGLang's own entry is: the plug-in then installs what a scheduler needs."""
    answers = api.platform_answers()
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang.benchmark import one_batch
    from sglang.srt.models.deepseek_common import deepseek_weight_loader
    from sglang.srt.platforms import current_platform
    from sglang.srt.server_args import PortArgs, prepare_server_args

    # HCCL is CANN's, and one rank has nobody to talk to.
    type(current_platform).get_torch_distributed_backend_str = lambda self: "gloo"
    # The mode below belongs to this thread.
    deepseek_weight_loader.should_async_load = lambda weight: False

    model = str(catalog.resolve("tiny-deepseek-v3"))
    flags = ("--model-path", model, "--dtype", "bfloat16", "--max-total-tokens", "2048")
    args = prepare_server_args([*flags, "--cuda-graph-backend-decode", "disabled"])
    args.resolve_once()
    ranks = one_batch.SpawnRanks(world_rank=0, gpu_id=0)
    one_batch.publish(args, role="scheduler", ranks=ranks)
    one_batch._init_process_global_configs()
    with NpuOnCpu() as mode:
        runner, tokenizer = one_batch.load_model(args, PortArgs.init_new(args), 0, 0)
        steps = _generate(runner, [tokenizer.encode(prompt) for prompt in PROMPTS])
    return {
        "platform": answers,
        "device": runner.torch_runner.device,
        "backend": type(runner.torch_runner.attn_backend).__name__,
        "tokens": [list(tokens) for tokens in zip(*steps)],
        "calls": mode.calls,
    }


def _generate(runner, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens of all prompts, a list for each step."""
    tokens, _, batch = runner.extend([_request(*item) for item in enumerate(prompts)])
    steps = [tokens.tolist()]
    while len(steps) < NEW_TOKENS:
        tokens, _ = runner.decode(tokens, batch)
        steps.append(tokens.tolist())
    return steps


def _request(number: int, ids: list[int]):
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.sampling.sampling_params import SamplingParams

    request = Req(
        rid=number,
        origin_input_text="",
        origin_input_ids=array("q", ids),
        sampling_params=SamplingParams(temperature=0, max_new_tokens=NEW_TOKENS),
    )
    # What the scheduler sets when it admits a request.
    request.full_untruncated_fill_ids = request.origin_input_ids
    request.logprob_start_len = -1
    request.extend_end = len(ids)
    return request


if __name__ == "__main__":
    implement_npu_operators()
    print(json.dumps(run_scheduler_process()))
