"""`distill`: a segmenter and a corpus in, a SentencePiece unigram model out"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from dpe.corpus_run.lines import PieceCounter
from dpe.corpus_run.run import WHOLE, Shard, segmenter_run
from dpe.errors import refuse
from dpe.model.checkpoint import load_vocabulary, read_settings
from dpe.model.settings import model_settings
from dpe.segmenter.distillation import (
    PieceCounts,
    UnigramFit,
    distilled_vocabulary,
    frequent_words,
)
from dpe.segmenter.segmenter import BATCH_CHARACTERS
from dpe.segmenter.settings import DistillSettings, SegmenterSettings
from dpe.text.text_file import ParallelText, Text
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session


def distill(
    out: Path | str,
    *,
    segmenter: Path | str,
    target: Text,
    source: Text | None = None,
    settings: DistillSettings = DistillSettings(),
    session: Session = Session(),
    batch_characters: int = BATCH_CHARACTERS,
    force: bool = False,
) -> Vocabulary:
    """Write the unigram model `out` that segments as a trained segmenter does, as nearly as one can.

    A text is a list of lines, or the path of a file; a segmenter that was trained without a source takes the
    target alone. The segmenter's best segmentation of the text is written too, as `OUT.pieces.gz`; with its
    record it is where a killed run resumes, and what spares a second one the network.
    """
    vocabulary, words, counts = count_pieces(
        out,
        segmenter=segmenter,
        target=target,
        source=source,
        settings=settings,
        session=session,
        batch_characters=batch_characters,
        force=force,
    )
    out, progress = Path(out), session.progress
    fit = UnigramFit(vocabulary, words, counts, ridge=settings.ridge)
    with progress.live():
        scores = fit.minimum(max_updates=settings.max_updates, report=progress.update)
    distilled = distilled_vocabulary(vocabulary, scores.numpy())
    distilled.save(out)
    progress.say(f"{out}: {len(distilled):,} pieces, fitted to {sum(words.values()):,} words")
    return distilled


def count_pieces(
    out: Path | str,
    *,
    segmenter: Path | str,
    target: Text,
    source: Text | None,
    settings: DistillSettings,
    session: Session,
    batch_characters: int,
    force: bool,
    lines: Shard = WHOLE,
) -> tuple[Vocabulary, dict[str, int], PieceCounts]:
    """The segmenter's vocabulary, the words to fit to, and how often the pieces are expected in these lines.

    Makes `OUT.pieces.gz`; its record has the counts, so those of several shards are joined with them.
    """
    out, directory = Path(out), Path(segmenter)
    stored = read_settings(directory, "segmenter")
    has_source = model_settings(stored, SegmenterSettings, str(directory)).source
    refuse(
        (source is not None and not has_source, f"{directory} was trained without a source; leave it out."),
        (source is None and has_source, f"{directory} was trained with a source; give the source too."),
    )
    vocabulary = load_vocabulary(directory, stored)
    text = ParallelText.open(source, target)
    progress = session.progress
    words = frequent_words(
        vocabulary, lambda: progress.track(text.target, "counting words"), settings.max_types
    )
    refuse((not words, "The text to distil from has no words."))
    progress.say(f"{len(words):,} word types, counting their pieces")
    configuration = {
        "command": "distill",
        "counts": settings.counts,
        "max_types": settings.max_types,
        "text": text.describe(),
    }
    answerer = partial(PieceCounter, directory.absolute(), settings.counts, frozenset(words))
    with segmenter_run(answerer, directory, session, batch_characters) as (run, about):
        record = run.write(text, segmented_file(out), configuration | about, force=force, lines=lines)
    return vocabulary, words, _piece_counts(record.totals, len(vocabulary))


def segmented_file(out: Path) -> Path:
    """Where the segmenter's own segmentation of the text is, beside the model."""
    return out.with_name(out.name + ".pieces.gz")


def _piece_counts(totals: Mapping[str, float], pieces: int) -> PieceCounts:
    counts = {kind: np.zeros(pieces) for kind in ("", "other")}
    for key, value in totals.items():
        kind, _, piece = key.rpartition(" ")
        counts[kind][int(piece)] = value
    return PieceCounts(counts[""], counts["other"])
