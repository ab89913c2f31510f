"""Expert parallelism of one rank: the transport that each step takes, and the layers that use it.

Upstream: ``forward_fuseep(layer, hidden_states, topk_output)``, which SGLang's ``FusedMoE`` calls
for ``--moe-a2a-backend ascend_fuseep`` with the rank's own tokens and their chosen experts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F

from sglang_ascend.comm.exchange_cost import MoeShape, Transport
from sglang_ascend.comm.hardware import Hardware
from sglang_ascend.comm.transport import Where
from sglang_ascend.moe import step as steps
from sglang_ascend.moe.dispatch.base import ExpertDispatch, SharedExpert
from sglang_ascend.moe.dispatch.chooser import Choice, ChooserState, StepView, choose
from sglang_ascend.moe.dispatch.routing_statistics import RoutingMonitor
from sglang_ascend.moe.experts import run_experts
from sglang_ascend.moe.metrics import EpMetrics
from sglang_ascend.moe.step import Step

logger = logging.getLogger(__name__)


class ExpertParallel:
    """One group of ranks that share the experts of a model; made after the weights are loaded."""

    def __init__(
        self,
        transports: Mapping[Transport, ExpertDispatch],
        shape: MoeShape,
        hardware: Hardware,
        layer_ids: Sequence[int],
        metrics: EpMetrics,
        turns: Sequence[Transport] = (),
        dispatch_capacity: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Take both transports of a group into use.

        Args:
            shape, hardware: what the prediction is made from; equal on all ranks.
            layer_ids: the model's layers with experts.
            turns: transports that the steps take in turn; empty to choose.
            dispatch_capacity: most tokens of a rank that Dispatch/Combine has room for, None for
                any number.
            device: where the tokens are.
        """
        self._group = transports["allgather"].group
        self._transports = transports
        self._shape, self._hardware = shape, hardware
        self._turns, self._capacity = turns, dispatch_capacity
        self._index = {layer_id: index for index, layer_id in enumerate(layer_ids)}
        placement = transports["allgather"].placement
        self._monitor = RoutingMonitor(self._group, placement, len(layer_ids), device=device)
        self._state = ChooserState()
        self._metrics = metrics
        self._step: Step | None = None
        self._choice: Choice | None = None

    def run(
        self,
        layer,
        hidden: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        shared: SharedExpert | None,
    ) -> torch.Tensor:
        """One layer's experts for this rank's tokens; all ranks call it together.

        Args:
            layer: SGLang's ``FusedMoE``.
            hidden: [rows, hidden], ids: [rows, k] expert slots, weights: [rows, k] float32. Rows
                behind the step's token count of this rank are padding.
            shared: the shared expert, where it has ranks of its own.

        Returns:
            [rows, hidden]; zero in the padding.
        """
        step = self._enter(steps.current())
        tokens = step.token_counts[self._group.rank]
        ids = ids[:tokens].int()
        self._monitor.add(self._index[layer.layer_id], ids)
        began = time.perf_counter()
        out = self._transports[self._choice.transport].run(
            hidden[:tokens],
            ids,
            weights[:tokens].float(),
            step.token_counts,
            partial(run_experts, layer),
            Where(step.number, layer.layer_id, ""),
            shared,
        )
        self._metrics.layer_done(self._choice, time.perf_counter() - began)
        return F.pad(out, (0, 0, 0, len(hidden) - tokens))

    def _enter(self, step: Step) -> Step:
        """Choose once a step; every rank gets here with the same step and the same state."""
        if step is self._step:
            return step
        if self._step is not None:
            self._end_step(self._step)
        self._step = step
        before = self._choice
        self._choice = self._choose(step)
        self._metrics.step_began(step, self._choice)
        changed = before is None or before.transport != self._choice.transport
        if changed and len(self._turns) < 2:
            logger.info("expert parallelism, step %d: %s", step.number, self._choice.reason)
        return step

    def _end_step(self, step: Step) -> None:
        if self._monitor.end_step(Where(step.number, None, "routing statistics")):
            self._metrics.routing(self._monitor.statistics, self._group.ledger)

    def _choose(self, step: Step) -> Choice:
        view = StepView(
            step.token_counts,
            self._group.topology,
            self._shape,
            self._monitor.statistics,
            self._hardware,
            self._capacity,
        )
        choice = choose(view, self._state)
        self._state = choice.state
        if not self._turns:
            return choice
        transport = self._turns[step.number % len(self._turns)]
        reason = f"{transport}, by --ep-dispatch"
        return Choice(transport, choice.predicted_s, reason, choice.state)


_active: ExpertParallel | None = None


def activate(group: ExpertParallel) -> None:
    """Make this the process's expert-parallel group."""
    global _active
    _active = group


def forward(layer, hidden_states: torch.Tensor, topk_output) -> torch.Tensor:
    """Replaces ``fuseep.forward_fuseep``.

    Args:
        layer: SGLang's ``FusedMoE`` with this rank's expert slots.
        hidden_states: [rows, hidden] of this rank.
        topk_output: weights [rows, k] and expert slots [rows, k], -1 for none.

    Returns:
        [rows, hidden], summed over the experts of each token.
    """
    weights, ids, _ = topk_output
    return _active.run(layer, hidden_states, ids, weights, getattr(layer, "shared_apart", None))
