"""One process or many: who am I, and sums over all of them.

`torchrun --nproc-per-node N -m dpe train-segmenter ...` starts N processes, each with these variables set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist

from dpe.model.device import choose_device

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Processes:
    """This process among `world` equal ones, and the device it computes on."""

    rank: int = 0
    world: int = 1
    device: torch.device = _CPU

    @property
    def first(self) -> bool:
        """Is this the one process that writes files and talks to the user?"""
        return self.rank == 0

    def sum_scalars(self, values: Iterable[float]) -> list[float]:
        """Each value summed over the processes, in double precision."""
        values = list(values)
        if self.world == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return [float(value) for value in total.cpu()]

    def join_lines(self, lines: Mapping[int, str]) -> dict[int, str]:
        """The lines by number of all processes together."""
        if self.world == 1:
            return dict(lines)
        content = torch.tensor(list(json.dumps(list(lines.items())).encode()), dtype=torch.uint8)
        sizes = [int(size) for size in self._gather(torch.tensor([len(content)]))]
        padded = torch.nn.functional.pad(content, (0, max(sizes) - len(content)))
        joined: dict[int, str] = {}
        for size, found in zip(sizes, self._gather(padded), strict=True):
            joined |= dict(json.loads(bytes(found[:size].tolist())))
        return joined

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor of every process; all have the same shape."""
        gathered = [torch.empty_like(tensor, device=self.device) for _ in range(self.world)]
        dist.all_gather(gathered, tensor.to(self.device))
        return [one.cpu() for one in gathered]

    def sum_gradients(self, gradients: list[Tensor]) -> None:
        """Replace each gradient by its sum over the processes; one message for all of them."""
        if self.world == 1:
            return
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def wait(self) -> None:
        """Go on when all processes are here."""
        if self.world > 1:
            dist.barrier()


def join_processes(device: str) -> Processes:
    """Join the group that torchrun started, or stand alone."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device, local_rank=int(os.environ.get("LOCAL_RANK", "0")))
    if world > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return Processes(rank=rank, world=world, device=chosen)


def leave_processes(processes: Processes) -> None:
    """Close the group, if there is one."""
    if processes.world > 1:
        dist.destroy_process_group()
