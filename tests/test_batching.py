"""Batches: which lines, in which order, within which budget, for which rank; and their tensors."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpe.lattice.lattice import LatticeBuilder
from dpe.model.batch_order import (
    Window,
    batches_by_length,
    epoch_batches,
    epoch_windows,
    prefetch,
    shard,
)
from dpe.model.batching import (
    CharacterIds,
    MixedCollator,
    MixedExample,
    TranslationExample,
    collate_translation,
)
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, split_words
from tests.vocabularies import make_vocabulary

Line = tuple[int, int, int]  # line, source size, target size
sizes = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=60)


def batches_of(
    sizes: list[tuple[int, int]],
    *,
    budget: tuple[int, int] = (50, 50),
    seed: int = 1,
    epoch: int = 0,
    window: int = 20_000,
) -> list[list[Line]]:
    def load(line: int) -> Line:
        return (line, *sizes[line])

    def size(example: Line) -> tuple[int, int]:
        return example[1:]

    made = epoch_batches(len(sizes), load, size, budget=budget, seed=seed, epoch=epoch, window=window)
    return list(made)


def lines_of(batches: list[list[Line]]) -> list[int]:
    return [line for batch in batches for line, _, _ in batch]


def padded_size(batch: list[Line]) -> tuple[int, int]:
    return len(batch) * max(e[1] for e in batch), len(batch) * max(e[2] for e in batch)


@given(sizes, st.integers(1, 70), st.integers(0, 3))
def test_every_line_once(sizes: list[tuple[int, int]], window: int, epoch: int) -> None:
    batches = batches_of(sizes, window=window, epoch=epoch)
    assert sorted(lines_of(batches)) == list(range(len(sizes)))


@given(sizes, st.tuples(st.integers(1, 200), st.integers(1, 200)), st.integers(1, 70))
def test_budgets_hold_with_padding(
    sizes: list[tuple[int, int]], budget: tuple[int, int], window: int
) -> None:
    for batch in batches_of(sizes, budget=budget, window=window):
        source, target = padded_size(batch)
        assert (source <= budget[0] and target <= budget[1]) or len(batch) == 1


@given(sizes, st.tuples(st.integers(30, 200), st.integers(30, 200)))
def test_batches_are_as_large_as_the_budget_allows(
    sizes: list[tuple[int, int]], budget: tuple[int, int]
) -> None:
    lines = [(number, *size) for number, size in enumerate(sizes)]
    batches = list(batches_by_length(lines, lambda line: line[1:], budget=budget))
    for batch, following in pairwise(batches):
        source, target = padded_size([*batch, following[0]])
        assert source > budget[0] or target > budget[1]


def test_lengths_of_a_batch_are_close() -> None:
    random = np.random.default_rng(0)
    drawn = [(int(n), int(n)) for n in random.integers(1, 100, size=3000)]
    batches = batches_of(drawn, budget=(2000, 2000))
    padded = sum(padded_size(batch)[1] for batch in batches)
    assert padded < 1.05 * sum(target for _, target in drawn)


def test_order_is_a_function_of_seed_and_epoch() -> None:
    sizes = [(5, 5)] * 200
    orders = {(s, e): lines_of(batches_of(sizes, seed=s, epoch=e)) for s in (1, 2) for e in (0, 1)}
    assert len({tuple(order) for order in orders.values()}) == 4
    assert list(range(200)) not in orders.values()
    for (seed, epoch), order in orders.items():
        assert order == lines_of(batches_of(sizes, seed=seed, epoch=epoch))


def test_batches_of_a_window_are_shuffled() -> None:
    lengths = [batch[0][2] for batch in batches_of([(n, n) for n in range(1, 50)])]
    assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))


def test_windows_follow_the_examples_from_short_to_long() -> None:
    sizes = [(1, 3), (1, 1), (2, 2), (1, 2), (1, 9), (1, 1)]
    made = batches_by_length(range(6), sizes.__getitem__, budget=(9, 9), window=4)
    assert [line for batch in made for line in batch] == [1, 3, 2, 0, 5, 4]
    assert list(batches_by_length([], sizes.__getitem__, budget=(9, 9))) == []


def test_lines_left_out() -> None:
    made = epoch_batches(
        9, lambda n: None if n % 3 else n, lambda _: (1, 1), budget=(2, 2), seed=0, epoch=0, window=2
    )
    assert sorted(n for batch in made for n in batch) == [0, 3, 6]


def test_only_one_window_is_loaded_at_a_time() -> None:
    loaded: list[int] = []
    made = epoch_batches(
        100, lambda n: loaded.append(n) or n, lambda _: (1, 1), budget=(5, 5), seed=0, epoch=0, window=10
    )
    next(made)
    assert len(loaded) == 10


@given(st.integers(0, 20), st.integers(1, 5))
def test_ranks_share_the_batches_out(batch_count: int, world: int) -> None:
    shares = [list(shard(range(batch_count), rank=rank, world=world)) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    together = [batch for group in zip(*shares, strict=True) for batch in group]
    assert together[:batch_count] == list(range(batch_count))
    assert set(together[batch_count:]) <= {None}
    assert len(together) < batch_count + world


def windows_of(count: int, world: int = 1, rank: int = 0, **more: Any) -> tuple[list[Window[int]], list[int]]:
    """The windows of a rank, of up to 40 lines in four shares, and the lines that it loads; lines ending in
    7 are left out."""
    loaded: list[int] = []

    def load(chunks: Iterable[list[int]]) -> Iterator[list[int | None]]:
        for lines in chunks:
            loaded.extend(lines)
            yield [None if line % 10 == 7 else line for line in lines]

    own = range(rank, 4, world)
    made = epoch_windows(
        count, load, lambda line: (1 + line % 3, 1 + line % 5), budget=(12, 12), seed=2, epoch=3, shares=4,
        own=own, window=10, **more,
    )  # fmt: skip
    return list(made), loaded


@given(st.integers(0, 150))
def test_ranks_load_their_shares_only_and_have_the_batches_of_one(count: int) -> None:
    whole, every = windows_of(count)
    assert sorted(every) == list(range(count))
    assert sum(window.left_out for window in whole) == len(range(7, count, 10))
    for world in (2, 4):
        found = [windows_of(count, world, rank) for rank in range(world)]
        assert sorted(line for _, loaded in found for line in loaded) == list(range(count))
        loads = [len(loaded) for _, loaded in found]
        assert max(loads) - min(loads) <= 4 // world
        for number, window in enumerate(whole):
            parts = [windows[number] for windows, _ in found]
            assert window.batches == [parts[share % world].batches[share // world] for share in range(4)]
            assert window.left_out == sum(part.left_out for part in parts)


@given(st.integers(0, 150), st.integers(0, 5))
def test_resuming_loads_the_windows_that_are_left(count: int, start: int) -> None:
    whole, every = windows_of(count)
    rest, loaded = windows_of(count, start=start)
    assert rest == whole[start:]
    assert loaded == every[40 * start :]


def test_many_lines_are_loaded_in_pieces_that_workers_can_share() -> None:
    sizes: list[int] = []

    def load(chunks: Iterable[list[int]]) -> Iterator[list[int]]:
        for lines in chunks:
            sizes.append(len(lines))
            yield lines

    made = epoch_windows(1_100, load, lambda _: (1, 1), budget=(9, 9), seed=1, epoch=0, window=600)
    assert sorted(line for window in made for batch in window.batches[0] for line in batch) == [*range(1_100)]
    assert max(sizes) <= 250
    assert len(sizes) == 5


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def until(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes true within a generous time."""
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def test_prefetch_gives_the_same_items() -> None:
    assert list(prefetch(iter([3, None, 1]))) == [3, None, 1]
    assert list(prefetch([])) == []
    assert not prefetch_threads()


def test_prefetch_works_ahead_but_not_further() -> None:
    made: list[int] = []
    items = prefetch((made.append(n) or n for n in count()), depth=2)
    assert [next(items), next(items)] == [0, 1]
    assert until(lambda: len(made) == 4)
    time.sleep(0.02)  # were it not bounded, it would run on
    assert len(made) == 4
    items.close()  # type: ignore[attr-defined]


def failing() -> Iterator[int]:
    yield 1
    raise KeyError("line 7")


def test_prefetch_hands_on_exceptions() -> None:
    items = prefetch(failing())
    assert next(items) == 1
    with pytest.raises(KeyError, match="line 7"):
        next(items)
    assert not prefetch_threads()


def test_prefetch_ends_when_closed_dropped_or_interrupted() -> None:
    closed = prefetch(count())
    next(closed)
    assert len(prefetch_threads()) == 1
    closed.close()  # type: ignore[attr-defined]
    assert not prefetch_threads()

    dropped = prefetch(count())
    next(dropped)
    del dropped
    assert not prefetch_threads()

    def interrupted() -> None:
        for _ in prefetch(count()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert until(lambda: not prefetch_threads())


def test_prefetch_does_not_hold_up_the_end_of_the_program() -> None:
    script = (
        "from itertools import count\n"
        "from dpe.model.batch_order import prefetch\n"
        "items = prefetch(count())\n"
        "print(next(items))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False
    )
    assert (result.returncode, result.stdout) == (0, "0\n")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return make_vocabulary(
        [(piece, -1.0) for piece in (MARKER, "a", "b", "ä", "ab", "\U0001f600", "zy", "y")]
    )


@given(st.text(alphabet="▁abäzyq\U0001f600\U0001f601\x00￿"))
def test_character_ids(vocabulary: Vocabulary, text: str) -> None:
    characters = CharacterIds(vocabulary)
    table = {character: 3 + i for i, character in enumerate(vocabulary.characters)}
    assert characters.encode(text).tolist() == [table.get(character, 2) for character in text]
    assert len(characters) == 3 + len(table)


def example_of(line: int, text: str, source: list[int] | None = None) -> MixedExample:
    return MixedExample(line, source, split_words(text), text)


def test_a_mixed_batch(vocabulary: Vocabulary) -> None:
    examples = [
        example_of(7, "▁ab▁q", [9, 8, 3]),
        example_of(2, "", [3]),
        example_of(5, "▁abzyq\U0001f601", [6, 3]),
    ]
    batch = MixedCollator(vocabulary).collate(examples, epoch=0)
    ids = {character: 3 + i for i, character in enumerate(vocabulary.characters)}
    mark, a, b, z, y = (ids[c] for c in "▁abzy")
    assert batch.characters.tolist() == [
        [1, mark, a, b, mark, 2, 0, 0],
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, mark, a, b, z, y, 2, 2],
    ]
    ends = [[row, t] for row, places in enumerate([(0, 3, 5), (0,), (0, 7)]) for t in places]
    assert batch.word_ends.nonzero().tolist() == ends
    assert batch.source is not None
    assert batch.source_lengths is not None
    assert batch.source.tolist() == [[9, 8, 3], [3, 0, 0], [6, 3, 0]]
    assert batch.source_lengths.tolist() == [3, 1, 2]
    assert batch.lines == (7, 2, 5)
    assert (batch.character_count, batch.word_count, batch.unknown_count) == (5 + 0 + 7 + 3, 3, 3)
    assert [example.size for example in examples] == [(3, 6), (1, 1), (2, 8)]


def test_lattice_positions_are_columns_of_the_characters(vocabulary: Vocabulary) -> None:
    texts = ["▁ab▁a", "", "▁abzy"]
    batch = MixedCollator(vocabulary).collate([example_of(i, t) for i, t in enumerate(texts)], epoch=0)
    expected = LatticeBuilder(vocabulary).batch(
        [split_words(t) for t in texts], stride=batch.characters.shape[1], end_piece=vocabulary.eos_id
    )
    assert torch.equal(batch.lattice.edge_positions, expected.edge_positions)
    assert torch.equal(batch.lattice.edge_pieces, expected.edge_pieces)
    ends = batch.lattice.edge_positions[batch.lattice.end_edges]
    assert ends.tolist() == [row * 6 + len(text) for row, text in enumerate(texts)]


def test_without_a_source(vocabulary: Vocabulary) -> None:
    collator = MixedCollator(vocabulary)
    batch = collator.collate([example_of(0, "▁a")], epoch=0)
    assert batch.source is None
    assert batch.source_lengths is None
    assert example_of(0, "▁a").size == (0, 3)
    with pytest.raises(ValueError, match="every example"):
        collator.collate([example_of(0, "▁a"), example_of(1, "▁a", [3])], epoch=0)


def hidden(
    vocabulary: Vocabulary, examples: list[MixedExample], *, seed: int = 1, epoch: int = 0
) -> torch.Tensor:
    batch = MixedCollator(vocabulary, unknown_rate=0.2, seed=seed).collate(examples, epoch=epoch)
    return batch.characters == CharacterIds.unknown


def test_hidden_characters_depend_on_seed_epoch_and_line_only(vocabulary: Vocabulary) -> None:
    examples = [example_of(line, "▁" + "ab" * (10 + line)) for line in range(5)]
    together = hidden(vocabulary, examples)
    shuffled = hidden(vocabulary, examples[::-1]).flip(0)
    assert torch.equal(together, shuffled)
    for row, example in enumerate(examples):
        alone = hidden(vocabulary, [example])
        assert torch.equal(alone[0], together[row, : alone.shape[1]])
    assert not torch.equal(together, hidden(vocabulary, examples, epoch=1))
    assert not torch.equal(together, hidden(vocabulary, examples, seed=2))
    same_text = [example_of(line, "▁" + "ab" * 20) for line in (3, 4)]
    rows = hidden(vocabulary, same_text)
    assert not torch.equal(rows[0], rows[1])


def test_share_of_hidden_characters(vocabulary: Vocabulary) -> None:
    examples = [example_of(line, "▁" + "ab" * 50) for line in range(500)]
    rate = 0.01
    batch = MixedCollator(vocabulary, unknown_rate=rate, seed=3).collate(examples, epoch=0)
    clean = MixedCollator(vocabulary).collate(examples, epoch=0)
    replaced = batch.characters != clean.characters
    assert (batch.characters[replaced] == CharacterIds.unknown).all()
    assert not replaced[:, 0].any()
    drawn = 500 * 101
    deviation = (drawn * rate * (1 - rate)) ** 0.5
    assert abs(int(replaced.sum()) - drawn * rate) < 5 * deviation
    assert batch.unknown_count == 0
    assert torch.equal(batch.lattice.edge_pieces, clean.lattice.edge_pieces)


def test_hiding_everything_spares_the_begin_symbol_and_padding(vocabulary: Vocabulary) -> None:
    collator = MixedCollator(vocabulary, unknown_rate=1.0, seed=0)
    batch = collator.collate([example_of(0, "▁a"), example_of(1, "▁")], epoch=0)
    assert batch.characters.tolist() == [[1, 2, 2], [1, 2, 0]]
    assert batch.word_ends.tolist() == [[True, False, True], [True, True, False]]


def test_a_translation_batch(vocabulary: Vocabulary) -> None:
    examples = [
        TranslationExample(line=4, source=[9, 3], target=[5, 6, 7]),
        TranslationExample(line=1, source=[8, 8, 3], target=[]),
    ]
    batch = collate_translation(examples, vocabulary)
    assert batch.source.tolist() == [[9, 3, 0], [8, 8, 3]]
    assert batch.source_lengths.tolist() == [2, 3]
    assert batch.target_in.tolist() == [[2, 5, 6, 7], [2, 0, 0, 0]]
    assert batch.target_out.tolist() == [[5, 6, 7, 3], [3, 0, 0, 0]]
    assert batch.lines == (4, 1)
    assert batch.token_count == 5
    assert [example.size for example in examples] == [(2, 4), (3, 1)]


def test_batches_move_between_devices(vocabulary: Vocabulary) -> None:
    mixed = MixedCollator(vocabulary).collate([example_of(0, "▁a", [3])], epoch=0).to("meta")
    examples = [TranslationExample(line=0, source=[3], target=[5])]
    translation = collate_translation(examples, vocabulary).to("meta")
    tensors = (mixed.source, mixed.characters, mixed.lattice.edge_pieces, mixed.lattice.buckets[0].cells)
    tensors += (translation.source, translation.target_in, translation.target_out)
    assert all(tensor is not None and tensor.is_meta for tensor in tensors)
    known = (mixed.source_lengths, mixed.word_ends, translation.source_lengths)  # what shapes depend on
    assert all(tensor is not None and not tensor.is_meta for tensor in known)
    assert mixed.lines == translation.lines == (0,)
