"""One process or many: who am I, and sums over all of them.

`torchrun --nproc-per-node N -m dpe train-segmenter ...` starts N processes, each with these variables set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch import distributed as dist

from dpe.model.device import choose_device
from dpe.progress import QUIET, Progress

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

    def sum_tensors(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its sum over the processes; one message for all of them."""
        if self.world == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def wait(self) -> None:
        """Go on when all processes are here."""
        if self.world > 1:
            dist.barrier()


@dataclass(frozen=True, kw_only=True)
class Session:
    """One start of a training or a run: what computes, and whom it tells. It changes rounding only."""

    device: str = "auto"
    threads: int | None = None  # CPU threads; None is one per core
    workers: int | None = None  # processes that segment the training text; None is one per core
    load_workers: int = 1  # processes that read and segment training lines; 1: a thread of this one
    keep_cuts: int | None = None  # epochs whose targets are kept; None: all where they are shared
    ray: str | None = None  # the address of a Ray cluster that segments a text, or makes the stages of a run
    save_seconds: float = 300.0  # the longest time that a kill can cost
    progress: Progress = field(default_factory=lambda: Progress(QUIET))
    processes: Processes | None = None  # None: those that torchrun started, or this one alone

    @contextmanager
    def joined(self) -> Iterator[Processes]:
        """This process among the others, which are left at the end."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        if self.processes is not None:
            yield self.processes
            return
        rank, world, local = (int(os.environ.get(name, "0")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        device = choose_device(self.device, local_rank=local)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if world > 1 and not dist.is_initialized():
            if device.type == "cuda":
                dist.init_process_group("nccl", device_id=device)
            else:
                dist.init_process_group("gloo")
        yield Processes(rank=rank, world=max(world, 1), device=device)
        if world > 1:
            dist.destroy_process_group()
