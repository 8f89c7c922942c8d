"""`prune_vocabulary`: a segmenter and a text in, the pieces that its posterior needs most out"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpe.corpus_run.piece_counts import SegmenterText
from dpe.segmenter.distillation import expected_pieces
from dpe.segmenter.segmenter import BATCH_CHARACTERS
from dpe.text.pruning import prune, refuse_size
from dpe.text.text_file import Text
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session

_TYPES_AT_ONCE = 200_000  # word types whose pieces are counted together, in bounded memory


def prune_vocabulary(
    out: Path | str,
    *,
    segmenter: Path | str,
    target: Text,
    size: int,
    source: Text | None = None,
    session: Session = Session(),
    batch_characters: int = BATCH_CHARACTERS,
    force: bool = False,
) -> Vocabulary:
    """Write a unigram model of `size` pieces: those that a segmenter over more pieces needs most.

    Pieces of the target are counted as the segmenter's exact posterior expects them, those of the source as
    the vocabulary itself segments it: by BPE, or as expected under the unigram model; a source that has a
    vocabulary of its own does not count. The segmenter's best segmentation of the target is written too, as
    `OUT.pieces.gz`; a killed run resumes there.
    """
    out, progress = Path(out), session.progress
    given = SegmenterText.open(Path(segmenter), source, target)
    refuse_size(given.vocabulary, size)
    expected = given.counts(
        out,
        (),
        {"command": "vocab"},
        counts="posterior",
        session=session,
        batch_characters=batch_characters,
        force=force,
    )
    counts = expected.fitted + expected.other
    if given.text.source is not None and given.vocabulary.is_joint:
        counts += plain_counts(given.vocabulary, progress.track(given.text.source, "counting the source"))
    with progress.live():
        pruned = prune(given.vocabulary, counts, size, report=progress.update)
    pruned.save(out)
    return pruned


def plain_counts(vocabulary: Vocabulary, lines: Iterable[str]) -> NDArray[np.float64]:
    """Counts of pieces in a text by the vocabulary itself, expected ones if it is a unigram. # [piece]"""
    counts = np.zeros(len(vocabulary))
    if vocabulary.type == "bpe":
        for line in lines:
            np.add.at(counts, vocabulary.piece_ids(vocabulary.encode(line)), 1)
        return counts
    for words in _words_in_parts(vocabulary, lines):
        counts += expected_pieces(vocabulary, words)
    return counts


def _words_in_parts(vocabulary: Vocabulary, lines: Iterable[str]) -> Iterator[Counter[str]]:
    words: Counter[str] = Counter()
    for line in lines:
        words.update(vocabulary.words(vocabulary.normalize(line)))
        if len(words) >= _TYPES_AT_ONCE:
            yield words
            words = Counter()
    yield words
