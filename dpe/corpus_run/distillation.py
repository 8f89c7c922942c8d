"""`distill`: a segmenter and a corpus in, a SentencePiece unigram model out"""

from __future__ import annotations

from pathlib import Path

from dpe.corpus_run.piece_counts import SegmenterText
from dpe.corpus_run.run import WHOLE, Shard
from dpe.errors import refuse
from dpe.model.device import choose_device
from dpe.segmenter.distillation import PieceCounts, UnigramFit, distilled_vocabulary, frequent_words
from dpe.segmenter.segmenter import BATCH_CHARACTERS
from dpe.segmenter.settings import DistillSettings
from dpe.text.text_file import Text
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
    target alone. The segmenter's best segmentation of the text is written too, as `OUT.pieces.gz`.
    """
    out = Path(out)
    given, words, counts = count_pieces(
        out,
        segmenter=segmenter,
        target=target,
        source=source,
        settings=settings,
        session=session,
        batch_characters=batch_characters,
        force=force,
    )
    fit = UnigramFit(given.vocabulary, words, counts, ridge=settings.ridge)
    with session.progress.live():
        scores = fit.minimum(max_updates=settings.max_updates, report=session.progress.update)
    distilled = distilled_vocabulary(given.vocabulary, scores.numpy())
    distilled.save(out)
    session.progress.say(f"{out}: {len(distilled):,} pieces, fitted to {sum(words.values()):,} words")
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
) -> tuple[SegmenterText, dict[str, int], PieceCounts]:
    """What `distill` fits to: the text, its words, and how often the pieces are expected in these lines."""
    if not session.ray:
        choose_device(session.device, bf16=settings.bf16)  # refused before the text is read
    given, progress = SegmenterText.open(Path(segmenter), source, target), session.progress
    words = frequent_words(
        given.vocabulary, lambda: progress.track(given.text.target, "counting words"), settings.max_types
    )
    refuse((not words, "The text to distil from has no words."))
    progress.say(f"{len(words):,} word types, counting their pieces")
    counts = given.counts(
        Path(out),
        words,
        {"command": "distill", "counts": settings.counts, "max_types": settings.max_types},
        counts=settings.counts,
        bf16=settings.bf16,
        session=session,
        batch_characters=batch_characters,
        force=force,
        lines=lines,
    )
    return given, words, counts
