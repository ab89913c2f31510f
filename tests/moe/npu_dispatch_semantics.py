"""torch_npu's dispatch and combine as their documentation describes them, on the CPU.

Every rank learns everything from every other one, and works out loop by loop what the operators'
documentation says: this stands for the documentation, not for a chip. Schemas are those of
torch_npu 2.13.0, less the options that no call passes.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from sglang_ascend.comm.transport import RankGroup

SCHEMAS = (
    "npu_moe_distribute_dispatch_v2(Tensor x, Tensor expert_ids, str group_ep, int ep_world_size,"
    " int ep_rank_id, int moe_expert_num, *, Tensor? scales=None, Tensor? x_active_mask=None,"
    " Tensor? expert_scales=None, int shared_expert_num=1, int shared_expert_rank_num=0,"
    " int quant_mode=0, int global_bs=0, int expert_token_nums_type=1, str comm_alg='')"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    "npu_moe_distribute_combine_v2(Tensor expand_x, Tensor expert_ids,"
    " Tensor assist_info_for_combine, Tensor ep_send_counts, Tensor expert_scales, str group_ep,"
    " int ep_world_size, int ep_rank_id, int moe_expert_num, *, Tensor? tp_send_counts=None,"
    " Tensor? x_active_mask=None, Tensor? expand_scales=None, Tensor? shared_expert_x=None,"
    " int shared_expert_num=1, int shared_expert_rank_num=0, int global_bs=0,"
    " int comm_quant_mode=0, str comm_alg='') -> Tensor",
)
_SHARED = -1


class Semantics:
    """The two operators for the ranks of one group, which calls reach by its name."""

    NAME = "documented"

    def __init__(self, group: RankGroup, product: str):
        self._group, self._product = group, product

    def define(self, library: torch.library.Library) -> None:
        for schema in SCHEMAS:
            library.define(schema)
            name = schema.split("(")[0]
            library.impl(name, getattr(self, name), "CPU")

    def _all(self, *values) -> list[tuple]:
        out = [None] * self._group.size
        dist.all_gather_object(out, values, group=self._group.process_group)
        return out

    def npu_moe_distribute_dispatch_v2(
        self, x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, *, scales=None,
        x_active_mask=None, expert_scales=None, shared_expert_num=1, shared_expert_rank_num=0,
        quant_mode=0, global_bs=0, expert_token_nums_type=1, comm_alg="",
    ):  # fmt: skip
        assert group_ep == self.NAME and shared_expert_num == 1 and scales is None
        assert (ep_world_size, ep_rank_id) == (self._group.size, self._group.rank)
        assert quant_mode in (0, 2) and expert_token_nums_type == 1
        assert x.dtype in (torch.bfloat16, torch.float16) and expert_ids.dtype == torch.int32
        tokens, top_k = expert_ids.shape
        assert tokens > 0 and int(expert_ids.min()) >= 0 and int(expert_ids.max()) < moe_expert_num
        a2, self._shared_ranks = self._product == "A2", shared_expert_rank_num
        assert (expert_scales is not None) == a2 and not (a2 and shared_expert_rank_num)
        assert not (comm_alg == "hierarchy" and x_active_mask is not None)
        active = torch.ones(tokens, top_k, dtype=torch.bool)
        if x_active_mask is not None:
            if x_active_mask.dim() == 1:
                flags = x_active_mask.tolist()
                assert sorted(flags, reverse=True) == flags, "true comes before false"
                active = x_active_mask.unsqueeze(1).expand(tokens, top_k)
            else:
                assert not a2
                active = x_active_mask
        everyone = self._all(x, expert_ids, active)
        lengths = [len(ids) for _, ids, _ in everyone]
        assert global_bs == max(lengths) * ep_world_size
        if not all(mask.all() for _, _, mask in everyone):
            assert min(lengths) == max(lengths), "a mask wants the same number on all ranks"

        arrived, counts = [], []
        for expert in self._local(moe_expert_num, shared_expert_rank_num):
            here = 0
            for source, (rows, ids, mask) in enumerate(everyone):
                for token, row in enumerate(rows):
                    for choice in self._choices(expert, source, ids[token], mask[token]):
                        arrived.append((row, source, token, choice))
                        here += 1
            counts.append(here)
        local = len(counts)
        if ep_rank_id < shared_expert_rank_num:
            capacity = max(lengths) * -(-ep_world_size // shared_expert_rank_num)
        else:
            capacity = global_bs * min(local, top_k)
        assert len(arrived) <= capacity
        out = torch.full((capacity, x.shape[1]), float("nan"), dtype=x.dtype)
        assist = torch.full((capacity, 128), -9, dtype=torch.int32)
        for index, (row, *origin) in enumerate(arrived):
            out[index] = row
            assist[index, :3] = torch.tensor(origin, dtype=torch.int32)
        steps = torch.full((capacity,), float("nan"))
        if quant_mode == 2:
            used = out[: len(arrived)].float()
            largest = used.abs().amax(1, keepdim=True)
            whole = torch.where(largest == 0, 0.0, (used * (127.0 / largest)).round())
            out = torch.full(out.shape, 77, dtype=torch.int8)
            out[: len(arrived)] = whole.to(torch.int8)
            steps[: len(arrived)] = (largest / 127.0).squeeze(1)
        received = torch.tensor([len(arrived)], dtype=torch.int32)
        weights = torch.zeros(capacity) if a2 else torch.empty(0)
        per_expert = torch.tensor(counts, dtype=torch.int64)
        tp_counts = torch.empty(0, dtype=torch.int32)
        return out, steps, assist.flatten(), per_expert, received, tp_counts, weights

    def _local(self, experts, shared_ranks):
        rank = self._group.rank - shared_ranks
        if rank < 0:
            return [_SHARED]
        per_rank = experts // (self._group.size - shared_ranks)
        return range(rank * per_rank, (rank + 1) * per_rank)

    def _choices(self, expert, source, ids, mask):
        """Under which choices a token goes to an expert of this rank."""
        if expert != _SHARED:
            chosen = ids[mask].tolist()
            assert len(set(chosen)) == len(chosen), "ids of a token are distinct"
            return [k for k, (one, on) in enumerate(zip(ids.tolist(), mask.tolist())) if
                    on and one == expert]  # fmt: skip
        serves = source % self._shared_ranks == self._group.rank
        return [_SHARED] if serves and bool(mask.any()) else []

    def npu_moe_distribute_combine_v2(
        self, expand_x, expert_ids, assist_info_for_combine, ep_send_counts, expert_scales,
        group_ep, ep_world_size, ep_rank_id, moe_expert_num, *, tp_send_counts=None,
        x_active_mask=None, expand_scales=None, shared_expert_x=None, shared_expert_num=1,
        shared_expert_rank_num=0, global_bs=0, comm_quant_mode=0, comm_alg="",
    ):  # fmt: skip
        assert group_ep == self.NAME and shared_expert_x is None and comm_quant_mode == 0
        assert (expand_scales is not None) == (self._product == "A2")
        assert expert_scales.dtype == torch.float32 and not expert_scales.isnan().any()
        assert expert_scales.shape == expert_ids.shape
        count = int(ep_send_counts[-1])
        origins = assist_info_for_combine.view(-1, 128)[:count, :3].tolist()
        assert len(expand_x) * 128 == len(assist_info_for_combine)
        y = torch.zeros(len(expert_ids), expand_x.shape[1])
        for rows, places in self._all(expand_x[:count], origins):
            for row, (source, token, choice) in zip(rows, places):
                if source == ep_rank_id:
                    weight = 1.0 if choice == _SHARED else float(expert_scales[token, choice])
                    y[token] += weight * row.float()
        return y.to(expand_x.dtype)
