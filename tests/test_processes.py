"""Several processes as one: sums, lines and a translator's evaluation, through gloo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist

from dpe.errors import UserError
from dpe.model.device import choose_device
from dpe.model.translation import TranslationTransformer
from dpe.text.segmenters import OwnCut
from dpe.training.processes import Processes, Session
from dpe.training.state import Position
from dpe.translator.targets import CountTargets
from dpe.translator.training import TranslatorLines, TranslatorTask
from tests.forked import FORK, at_the_same_time
from tests.segmenters import learned_vocabulary
from tests.translators import SETTINGS, TRAIN, open_corpus, train, write_corpus


def in_processes(work: Callable[[Processes], Any], place: Path, *, world: int) -> list[Any]:
    """What each of several processes says, the first first."""
    answers = FORK.SimpleQueue()

    def start(rank: int) -> None:
        store = f"file://{place / 'store'}"
        dist.init_process_group(
            "gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60)
        )
        answers.put((rank, work(Processes(rank=rank, world=world))))
        dist.destroy_process_group()

    at_the_same_time(start, [(rank,) for rank in range(world)])
    return [answer for _, answer in sorted(answers.get() for _ in range(world))]


def test_every_process_has_all_lines_and_sums(tmp_path: Path) -> None:
    shares = [{0: "talo", 3: ""}, {}, {1: "öljy \u2028 東京", 2: "a\tb"}]

    def work(processes: Processes) -> tuple[dict[int, str], list[float]]:
        return processes.join_lines(shares[processes.rank]), processes.sum_scalars([processes.rank, 0.5])

    joined = {0: "talo", 3: "", 1: "öljy \u2028 東京", 2: "a\tb"}
    assert in_processes(work, tmp_path, world=3) == [(joined, [3.0, 1.5])] * 3
    assert Processes().join_lines(shares[0]) == shares[0]


def make_task(corpus: Path, batch: int) -> TranslatorTask:
    """An untrained translator: its translations run on to the limit."""
    vocabulary = learned_vocabulary()
    settings = replace(SETTINGS, batch=batch, label_smoothing=0.0)
    torch.manual_seed(1)  # another draw might have a tie, which the batch decides by rounding
    return TranslatorTask(
        TranslationTransformer.of(settings, vocabulary),
        vocabulary,
        open_corpus(corpus, "train"),
        open_corpus(corpus, "dev"),
        targets=CountTargets(OwnCut(vocabulary), seed=1),
        settings=settings,
    )


def test_processes_share_a_translators_evaluation_and_agree(tmp_path: Path) -> None:
    task, asked = make_task(write_corpus(tmp_path), batch=60), []
    alone = task.evaluate(Processes())
    translated = task._translated

    def counted(batch: Any) -> dict[int, str]:
        asked.extend(batch.lines)
        return translated(batch)

    task._translated = counted  # type: ignore[method-assign]
    found = in_processes(lambda processes: (task.evaluate(processes), asked), tmp_path, world=2)
    (first, first_lines), (second, second_lines) = found
    assert first == second
    assert first == pytest.approx(alone)
    assert sorted(first_lines + second_lines) == list(range(10))
    assert first_lines
    assert second_lines


def test_two_processes_load_half_of_the_lines_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, vocabulary = write_corpus(tmp_path), learned_vocabulary()
    load, loaded = TranslatorLines.__call__, list[int]()

    def counted(self: TranslatorLines, numbers: list[int]) -> Any:
        loaded.extend(numbers)
        return load(self, numbers)

    monkeypatch.setattr(TranslatorLines, "__call__", counted)

    def work(processes: Processes) -> tuple[Position, list[int]]:
        session = Session(processes=processes)
        position = train(tmp_path / "out", corpus, vocabulary, session=session, epochs=1, accumulate=2)
        return position, loaded

    (first, lines), (second, others) = in_processes(work, tmp_path, world=2)
    assert len(lines) == len(others) == len(TRAIN) // 2
    assert {*lines, *others} == set(range(len(TRAIN)))
    assert first.step == second.step > 1


def test_dev_translations_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    small = make_task(corpus, batch=30)
    large = make_task(corpus, batch=9_000)
    texts: list[list[str]] = []
    for task in (small, large):
        task._bleu = lambda lines, _: texts.append(list(lines)) or (0.0, 1.0)
        task.evaluate(Processes())
    assert texts[0] == texts[1]
    assert len(set(map(len, texts[0]))) > 1


def test_every_process_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [str(choose_device(name, local_rank=1)) for name in ("auto", "cuda", "cuda:0", "cpu")] == [
        "cuda:1", "cuda:1", "cuda:0", "cpu",
    ]  # fmt: skip
    with pytest.raises(UserError, match="more processes than GPUs; start at most 2"):
        choose_device("cuda", local_rank=2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)  # each process sees only its own
    assert str(choose_device("auto", local_rank=1)) == "cuda:0"
    for name in ("mps", "meta", "cuda:x", "nonsense"):
        with pytest.raises(UserError, match="no device"):
            choose_device(name)


def test_a_process_group_knows_its_gpu_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL otherwise guesses the device, and everything that is not told one goes to the first GPU."""
    calls: list[Any] = []
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: calls.append(str(device)))
    monkeypatch.setattr(dist, "init_process_group", lambda *given, **more: calls.append((given, more)))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    with Session().joined() as processes:
        assert (processes.rank, processes.world, str(processes.device)) == (3, 4, "cuda:1")
    assert calls == ["cuda:1", (("nccl",), {"device_id": torch.device("cuda:1")})]
