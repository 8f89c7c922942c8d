"""Targets of an epoch: draws of their own, cuts made once while others wait, how much changes."""

from __future__ import annotations

import gzip
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpe.corpus_run.lines import LineCutter
from dpe.corpus_run.run import Answers, NumberedPairs
from dpe.errors import UserError
from dpe.segmenter.settings import SegmentSettings
from dpe.store import key_of
from dpe.text.bpe import BpeDropout
from dpe.text.corpus import read_lines
from dpe.text.draws import Draw
from dpe.training.processes import Processes, Session
from dpe.translator.settings import TranslatorSettings
from dpe.translator.targets import CountTargets, KeptCuts, SegmenterTargets, changed_shares
from tests.forked import FORK, at_the_same_time
from tests.segmenters import learned_vocabulary, save_segmenter
from tests.translators import TRAIN, open_corpus, write_corpus


def test_random_targets_have_draws_of_their_own() -> None:
    segmenter = BpeDropout(learned_vocabulary(), dropout=0.5)
    text = TRAIN[0][1]
    cuts = [CountTargets(segmenter, seed=1).start(epoch)(7, text) for epoch in (0, 0, 1)]
    assert cuts[0] == cuts[1] != cuts[2]
    assert cuts[0] != segmenter.cut(text, Draw(1, 0, 7))  # which is how a source would be cut


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"source_method": "bpe-dropout"}, {"source_dropout": 0.1, "epoch": 3}),
        ({"source_method": "unigram"}, {"source_alpha": 0.3, "epoch": 3}),
        ({"source_method": "unigram", "cut_seed": 9}, {"source_alpha": 0.3, "seed": 9, "epoch": 3}),
        (
            {"source_method": "unigram-best", "target_sampling": 2.0},
            {"mode": "sample", "temperature": 2.0, "epoch": 3},
        ),
        ({"source_method": "unigram", "target_method": "dpe-fixed"}, {}),
    ],
)
def test_the_key_of_targets_holds_how_their_sources_are_drawn_and_no_defaults(
    tmp_path: Path, changes: dict[str, Any], wanted: dict[str, Any]
) -> None:
    segmenter = save_segmenter(tmp_path / "segmenter", learned_vocabulary())
    text = open_corpus(write_corpus(tmp_path), "train")
    cuts = KeptCuts(segmenter, text, tmp_path / "cuts", Session())
    settings = replace(SETTINGS, unigram_alpha=0.3, **changes)
    targets = SegmenterTargets(cuts, settings, work=tmp_path, processes=Processes())
    key = key_of({"cutter": cuts.fingerprint, "text": text.describe()} | wanted)
    assert targets.path(3) == tmp_path / "cuts" / f"{key}.epoch-{wanted.get('epoch', 0):03}.pieces.gz"


class SlowCuts(KeptCuts):
    """Writes the same pieces for every request, slowly."""

    def _segment(self, out: Path, settings: SegmentSettings, *more: Any) -> None:
        (out.parent / "calls").open("a").write("x")
        time.sleep(0.3)
        out.with_suffix(".aside").write_bytes(gzip.compress("▁a b\n".encode()))
        out.with_suffix(".aside").replace(out)


@pytest.mark.parametrize(("keep", "left"), [(None, [0, 1, 2, 3]), (2, [2, 3]), (1, [3])])
def test_targets_of_older_epochs_are_removed(tmp_path: Path, keep: int | None, left: list[int]) -> None:
    save_segmenter(tmp_path / "segmenter", learned_vocabulary())
    here = targets(SlowCuts, tmp_path, "work", Processes(), keep=keep)
    for epoch in range(4):
        assert here.start(epoch)(0, "ab") == ["▁a", "b"]
        assert ("changed_lines" in here.report()) is (epoch > 0)
    assert [epoch for epoch in range(4) if here.path(epoch).exists()] == left


def test_processes_share_the_uncompressed_targets(tmp_path: Path) -> None:
    save_segmenter(tmp_path / "segmenter", learned_vocabulary())
    both = [targets(SlowCuts, tmp_path, "work", Processes(rank, 2)) for rank in (0, 1)]
    for epoch in (0, 1):
        assert [one.start(epoch)(0, "ab") for one in both] == [["▁a", "b"]] * 2
        kept = sorted(path.name.partition(".pieces")[0] for path in (tmp_path / "work" / "cuts").iterdir())
        assert kept == [both[0].path(epoch).name.partition(".pieces")[0]] * 2  # text and line ends


SETTINGS = TranslatorSettings(source_method="bpe-dropout", target_method="dpe", bpe_dropout=0.1)


def targets(
    kind: type[KeptCuts], place: Path, work: str, processes: Processes, **more: Any
) -> SegmenterTargets:
    text = open_corpus(write_corpus(place / work), "train")
    cuts = kind(place / "segmenter", text, place / "cuts", Session())
    return SegmenterTargets(cuts, SETTINGS, work=place / work, processes=processes, **more)


@pytest.mark.parametrize("ranks", [(0, 1), (0, 0)], ids=["processes of one training", "two trainings"])
def test_cuts_are_made_once_while_others_wait(tmp_path: Path, ranks: tuple[int, int]) -> None:
    found = FORK.SimpleQueue()
    save_segmenter(tmp_path / "segmenter", learned_vocabulary())

    def start(name: int, rank: int) -> None:
        here = targets(SlowCuts, tmp_path, str(name), Processes(rank=rank, world=2))
        found.put(here.start(3)(0, "ab"))

    at_the_same_time(start, list(enumerate(ranks)))
    assert [found.get(), found.get()] == [["▁a", "b"], ["▁a", "b"]]
    assert (tmp_path / "cuts" / "calls").read_text() == "x"


def test_processes_segment_some_lines_each_and_the_first_joins_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six windows in four shards; one of them was made before a kill."""
    monkeypatch.setattr("dpe.corpus_run.run.WINDOW", 50)
    monkeypatch.setattr("dpe.translator.targets.WINDOW", 50)
    segmenter = save_segmenter(tmp_path / "segmenter", learned_vocabulary())
    text, settings = (
        open_corpus(write_corpus(tmp_path), "train"),
        SegmentSettings(source_dropout=0.2, epoch=4),
    )
    cut, numbers = LineCutter.__call__, list[int]()

    def counted(self: LineCutter, lines: NumberedPairs) -> Answers:
        numbers.extend(lines.numbers)
        return cut(self, lines)

    monkeypatch.setattr(LineCutter, "__call__", counted)
    whole, parts = (
        KeptCuts(segmenter, text, tmp_path / name, Session(workers=1)) for name in ("whole", "parts")
    )
    wanted = read_lines(whole.make(settings))
    found = FORK.SimpleQueue()

    def start(rank: int) -> None:
        numbers.clear()
        parts.make(settings, Processes(rank, 4))
        found.put(sorted(numbers))

    before = FORK.Process(target=start, args=(2,))
    before.start()
    deadline = time.monotonic() + 60
    while not list((tmp_path / "parts").glob("*.2-of-4.gz")) or list((tmp_path / "parts").glob(".*.lock")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before.kill()  # it waits for the others
    before.join()
    at_the_same_time(start, [(rank,) for rank in range(4)])
    shares = sorted(found.get() for _ in range(4))
    assert shares == [[], [*range(50)], [*range(50, 150)], [*range(200, 300)]]
    assert list(read_lines(parts.path(settings))) == list(wanted)
    kept = [sorted(one.name for one in (tmp_path / name).iterdir()) for name in ("whole", "parts")]
    assert kept[0] == kept[1]


def test_other_cuts_do_not_wait(tmp_path: Path) -> None:
    save_segmenter(tmp_path / "segmenter", learned_vocabulary())
    meeting = FORK.Barrier(2)

    class MeetingCuts(SlowCuts):
        """Segments when another process segments at the same time."""

        def _segment(self, out: Path, settings: SegmentSettings, *more: Any) -> None:
            meeting.wait(timeout=60)
            super()._segment(out, settings, *more)

    def start(epoch: int) -> None:
        targets(MeetingCuts, tmp_path, str(epoch), Processes()).start(epoch)

    at_the_same_time(start, [(3,), (4,)])
    assert len(list((tmp_path / "cuts").glob("*.pieces.gz"))) == 2


@pytest.mark.parametrize("change", ["text", "segmenter"])
def test_cuts_are_not_kept_under_the_name_of_what_has_changed(tmp_path: Path, change: str) -> None:
    corpus, vocabulary = write_corpus(tmp_path / "corpus"), learned_vocabulary()
    one, two = (save_segmenter(tmp_path / str(seed), vocabulary, seed=seed) for seed in (1, 2))
    target = corpus / "train.fi"
    kept = KeptCuts(one, open_corpus(corpus, "train"), tmp_path / "cuts", Session(workers=1))
    if change == "text":
        lines = target.read_text(encoding="utf-8").splitlines(keepends=True)
        target.write_text("".join(reversed(lines)), encoding="utf-8")
    else:
        shutil.copy(two / "model.safetensors", one)
    settings = SegmentSettings(source_dropout=0.1, epoch=1)
    with pytest.raises(UserError, match="in use"):
        kept.make(settings)
    assert not kept.path(settings).exists()


def test_shares_of_changed_lines_and_words(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text("▁a b ▁c\n▁d\n\n▁e ▁f g ▁h\n", encoding="utf-8")
    after.write_text("▁ab ▁c\n▁d\n\n▁e ▁f g ▁h\n", encoding="utf-8")
    assert changed_shares(before, after) == (1 / 4, 1 / 6)
    assert changed_shares(before, before) == (0.0, 0.0)
    assert changed_shares(before, after, most=2) == (1 / 2, 1 / 3)
