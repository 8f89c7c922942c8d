"""`dpe.data`: pairs in a torch data loader, segmented anew every epoch, whoever asks for them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Subset

from dpe import OnTheFly, Segmenter, UserError, Vocabulary
from dpe.data import CountPairs, EpochPairs, PairCutter
from dpe.text.bpe import BpeDropout
from dpe.text.corpus import write_lines
from dpe.text.draws import TARGET_STREAM, Draw
from dpe.text.unigram import uniform
from tests.segmenters import PAIRS, learned_vocabulary, save_segmenter

SOURCES, TARGETS = map(list, zip(*PAIRS, strict=True))


@pytest.fixture(scope="module")
def cutter(tmp_path_factory: pytest.TempPathFactory) -> OnTheFly:
    directory = save_segmenter(tmp_path_factory.mktemp("data") / "s", learned_vocabulary())
    return OnTheFly(Segmenter.load(directory), dropout=0.3, seed=5, temperature=2.0)


def examples(pairs: EpochPairs, **options: Any) -> list[dict[str, list[int]]]:
    """What a data loader gives in an epoch, one after the other."""
    return [one for batch in DataLoader(pairs, collate_fn=list, **options) for one in batch]


def wanted(cutter: PairCutter, epoch: int, lines: Sequence[int]) -> list[dict[str, list[int]]]:
    """The pairs that the cutter gives when it is asked for all at once, as ids with their ends."""
    chosen = [PAIRS[line] for line in lines]
    found = cutter.pairs([s for s, _ in chosen], [t for _, t in chosen], epoch=epoch, lines=lines)
    vocabulary = cutter.vocabulary
    sides = [(vocabulary.piece_ids(p.source), vocabulary.piece_ids(p.target)) for p in found]
    end = vocabulary.eos_id
    return [{"input_ids": [*source, end], "labels": [*target, end]} for source, target in sides]


@pytest.mark.parametrize("batch_size", [1, 7, 400])
def test_pairs_of_an_epoch_are_the_cutters_whatever_the_batch(batch_size: int, cutter: OnTheFly) -> None:
    pairs = EpochPairs(SOURCES, TARGETS, cutter)
    seen = []
    for epoch in (0, 3):
        pairs.set_epoch(epoch)
        found = examples(pairs, batch_size=batch_size)
        assert found == wanted(cutter, epoch, range(len(PAIRS)))
        seen.append(found)
    assert sum(one != other for one, other in zip(*seen, strict=True)) > len(PAIRS) / 2
    decode = cutter.vocabulary.decode_ids
    assert [decode(one["labels"]) for one in seen[0]] == TARGETS
    assert [decode(one["input_ids"]) for one in seen[0]] == SOURCES


def test_spawned_workers_that_persist_follow_the_epoch(cutter: OnTheFly, tmp_path: Path) -> None:
    """The text is in files here; each worker opens them, and loads the segmenter, for itself."""
    write_lines(tmp_path / "x.en.zst", SOURCES[:90])
    write_lines(tmp_path / "x.fi", TARGETS[:90])
    pairs = EpochPairs(tmp_path / "x.en.zst", tmp_path / "x.fi", cutter)
    loader = DataLoader(
        pairs, batch_size=8, num_workers=2, collate_fn=list,
        persistent_workers=True, multiprocessing_context="spawn",
    )  # fmt: skip
    for epoch in (2, 0):
        pairs.set_epoch(epoch)
        found = [one for batch in loader for one in batch]
        assert found == wanted(cutter, epoch, range(90))


def test_a_batch_is_one_call(cutter: OnTheFly, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    answers = Segmenter.answer_pairs

    def counted(self: Segmenter, rows: Any, *arguments: Any) -> Any:
        rows = list(rows)
        calls.append(len(rows))
        return answers(self, rows, *arguments)

    monkeypatch.setattr(Segmenter, "answer_pairs", counted)
    pairs = EpochPairs(SOURCES[:20], TARGETS[:20], cutter)
    examples(pairs, batch_size=8)
    assert calls == [8, 8, 4]
    examples(Subset(pairs, [3, 1, 2]), batch_size=8)  # type: ignore[arg-type]
    assert calls[3:] == [3]


def test_rows_are_those_of_a_list(cutter: OnTheFly) -> None:
    pairs = EpochPairs(SOURCES, TARGETS, cutter)
    pairs.set_epoch(1)
    last = len(PAIRS) - 1
    assert len(pairs) == len(PAIRS)
    assert pairs[-1] == pairs[last] == wanted(cutter, 1, [last])[0]
    assert pairs.__getitems__([5, 2, 5]) == [pairs[5], pairs[2], pairs[5]]
    assert pairs.__getitems__([]) == []
    with pytest.raises(IndexError):
        pairs[last + 1]
    with pytest.raises(UserError, match="equally many lines"):
        EpochPairs(SOURCES, TARGETS[1:], cutter)


def test_nothing_heavy_is_pickled(cutter: OnTheFly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "x.en", SOURCES)
    write_lines(tmp_path / "x.fi", TARGETS)
    pairs = EpochPairs(tmp_path / "x.en", tmp_path / "x.fi", cutter, cache=tmp_path / "cache")
    pairs.set_epoch(4)
    content = pickle.dumps(pairs)
    assert len(content) < 5_000
    monkeypatch.chdir(tmp_path)  # a worker may stand elsewhere
    assert pickle.loads(content)[7] == pairs[7]


def test_pairs_by_counts_have_the_draws_of_a_translators_training() -> None:
    vocabulary: Vocabulary = learned_vocabulary()
    source, target = BpeDropout(vocabulary, dropout=0.2), uniform(vocabulary, skew=1.0)
    pairs = EpochPairs(SOURCES, TARGETS, CountPairs(vocabulary, source, target, seed=8))
    pairs.set_epoch(6)
    for line, pair in zip((3, 40), pairs.pairs([3, 40]), strict=True):
        assert list(pair.source) == source.cut(SOURCES[line], Draw(8, 6, line))
        assert list(pair.target) == target.cut(TARGETS[line], Draw(8 + TARGET_STREAM, 6, line))
