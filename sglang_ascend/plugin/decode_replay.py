"""Decode steps of the reference device, replayed from a recording for each batch size.

Upstream: a model's ``forward`` calls ``self.model``, the stack of layers, as a module; an instance
attribute ``forward`` on that module takes its place. SGLang's own graph runners capture CUDA graphs
or compile with Inductor, and neither knows the kernels here.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections import OrderedDict

import torch

from sglang_ascend.attention.metadata import StepMetadata
from sglang_ascend.native import attention, int8, library
from sglang_ascend.native.recording import Recording

logger = logging.getLogger(__name__)

#: 0 runs every decode step through SGLang's Python.
REPLAY_ENV = "SGLANG_ASCEND_DECODE_REPLAY"
#: Recordings held, and the memory that they may hold together; the least recently used one goes.
MOST_RECORDINGS = 32
MOST_BYTES = 256 * 2**20


def install(model) -> None:
    """Let ``model.model`` replay its decode steps, where there are native kernels to replay."""
    layers = getattr(model, "model", None)
    # Ranks of a group would have to agree on what they replay.
    alone = not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1
    wanted = alone and os.environ.get(REPLAY_ENV) != "0"
    if wanted and isinstance(layers, torch.nn.Module) and library.kernels() is not None:
        layers.forward = DecodeReplay(layers.forward)


@dataclasses.dataclass
class _Step:
    """A recorded decode step of ``requests`` requests and the tensors that it reads."""

    recording: Recording
    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    metadata: StepMetadata
    lens: object
    hidden: torch.Tensor
    packs: int

    def run(self, input_ids, positions, slots, metadata: StepMetadata) -> torch.Tensor:
        requests = len(metadata.kv_lens)
        self.input_ids.copy_(input_ids)
        self.positions.copy_(positions)
        self.slots.copy_(slots)
        self.metadata.block_table[:, : metadata.block_table.shape[1]].copy_(metadata.block_table)
        self.lens[2 * requests + 1 :] = metadata.kv_lens
        self.recording.replay()
        return self.hidden.clone()


class DecodeReplay:
    """Stands for ``forward`` of a model's stack of layers.

    A batch size is recorded when it comes for the second time, checked by one replay on the same
    inputs, and replayed from then on. A model whose step cannot be recorded (an operator that is
    not in ``native.recording``, MoE counts that Python reads) runs as before.
    """

    def __init__(self, forward) -> None:
        self._forward = forward
        self._seen: set[int] = set()
        self._steps: OrderedDict[int, _Step] = OrderedDict()
        self._possible = True

    def __call__(self, input_ids, positions, forward_batch, *args, **kwargs):
        plain = (
            self._possible
            and forward_batch.forward_mode.is_decode()
            and all(value is None for value in (*args, *kwargs.values()))
            # Adapters differ from step to step behind the same shapes.
            and not any(forward_batch.lora_ids or ())
        )
        if not plain:
            return self._forward(input_ids, positions, forward_batch, *args, **kwargs)
        from sglang.srt.layers.radix_attention import get_attn_backend

        backend = get_attn_backend()
        requests = input_ids.shape[0]
        step = self._steps.get(requests)
        if step is not None and step.packs == int8.packs():
            self._steps.move_to_end(requests)
            return step.run(
                input_ids, positions, forward_batch.out_cache_loc, backend.forward_metadata
            )
        if requests not in self._seen or len(backend.forward_metadata.kv_lens) != requests:
            self._seen.add(requests)
            return self._forward(input_ids, positions, forward_batch, *args, **kwargs)
        return self._record(backend, input_ids, positions, forward_batch)

    def _record(self, backend, input_ids, positions, forward_batch):
        metadata, slots = backend.forward_metadata, forward_batch.out_cache_loc
        table = metadata.block_table
        room = table.new_zeros(table.shape[0], backend.most_blocks)
        room[:, : table.shape[1]] = table
        mine = StepMetadata(room, list(metadata.query_lens), list(metadata.kv_lens))
        inputs = input_ids.clone(), positions.clone(), slots.clone()
        recording = Recording()
        backend.forward_metadata, forward_batch.out_cache_loc = mine, inputs[2]
        try:
            with recording:
                hidden = self._forward(inputs[0], inputs[1], forward_batch)
        finally:
            backend.forward_metadata, forward_batch.out_cache_loc = metadata, slots
        if not isinstance(hidden, torch.Tensor) or recording.refused:
            self._give_up(recording.refused or f"its result is a {type(hidden).__name__}")
            return hidden
        step = _Step(
            recording,
            *inputs,
            metadata=mine,
            lens=attention.request_lens(mine.query_lens, mine.kv_lens),
            hidden=hidden,
            packs=int8.packs(),
        )
        expected = hidden.clone()
        recording.erase()
        # Writes the same rows to the same slots: harmless.
        if torch.equal(step.run(input_ids, positions, slots, metadata), expected):
            self._keep(len(mine.kv_lens), step)
        else:
            self._give_up("a replay on the same inputs gives another result")
        return expected

    def _keep(self, requests: int, step: _Step) -> None:
        if not self._steps:
            logger.info("decode steps are replayed from recordings, one for each batch size")
        self._steps[requests] = step
        while len(self._steps) > 1 and (
            len(self._steps) > MOST_RECORDINGS
            or sum(kept.recording.nbytes for kept in self._steps.values()) > MOST_BYTES
        ):
            self._steps.popitem(last=False)

    def _give_up(self, reason: str) -> None:
        self._possible = False
        self._steps.clear()
        logger.info("decode steps of this model are not replayed: %s", reason)
