"""`distill`: a segmenter and a corpus in, a SentencePiece unigram model out"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from dpe.corpus_run.lines import PieceCounter
from dpe.corpus_run.run import CorpusRun
from dpe.errors import refuse
from dpe.model.checkpoint import load_vocabulary, read_settings
from dpe.model.device import choose_device
from dpe.model.settings import model_settings
from dpe.segmenter.distillation import (
    PieceCounts,
    UnigramFit,
    distilled_vocabulary,
    frequent_words,
)
from dpe.segmenter.segmenter import BATCH_CHARACTERS, fingerprint
from dpe.segmenter.settings import DistillSettings, SegmenterSettings, SegmentSettings
from dpe.settings import changed
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
    out, directory = Path(out), Path(segmenter)
    record = read_settings(directory, "segmenter")
    has_source = model_settings(record, SegmenterSettings, str(directory)).source
    refuse(
        (source is not None and not has_source, f"{directory} was trained without a source; leave it out."),
        (source is None and has_source, f"{directory} was trained with a source; give the source too."),
    )
    device = choose_device(session.device, bf16=settings.bf16)
    asked = SegmentSettings(bf16=settings.bf16)
    vocabulary = load_vocabulary(directory, record)
    text = ParallelText.open(source, target)
    progress = session.progress
    words = frequent_words(
        vocabulary, lambda: progress.track(text.target, "counting words"), settings.max_types
    )
    refuse((not words, "The text to distil from has no words."))
    progress.say(f"{len(words):,} word types, counting their pieces")
    run = CorpusRun(
        partial(PieceCounter, directory, asked, settings.counts, frozenset(words)),
        device=device,
        workers=session.workers,
        batch_characters=batch_characters,
        progress=progress,
    )
    configuration = {
        "command": "distill",
        **changed(asked),
        "counts": settings.counts,
        "max_types": settings.max_types,
        "text": text.describe(),
        "segmenter": fingerprint(directory),
        "batch_characters": batch_characters,
        "device": device.type,
    }
    totals = run.write(text, segmented_file(out), configuration, force=force).totals
    fit = UnigramFit(vocabulary, words, _piece_counts(totals, len(vocabulary)), ridge=settings.ridge)
    with progress.live():
        scores = fit.minimum(max_updates=settings.max_updates, report=progress.update)
    distilled = distilled_vocabulary(vocabulary, scores.numpy())
    distilled.save(out)
    progress.say(f"{out}: {len(distilled):,} pieces, fitted to {sum(words.values()):,} words")
    return distilled


def segmented_file(out: Path) -> Path:
    """Where the segmenter's own segmentation of the text is, beside the model."""
    return out.with_name(out.name + ".pieces.gz")


def _piece_counts(totals: Mapping[str, float], pieces: int) -> PieceCounts:
    counts = {kind: np.zeros(pieces) for kind in ("", "other")}
    for key, value in totals.items():
        kind, _, piece = key.rpartition(" ")
        counts[kind][int(piece)] = value
    return PieceCounts(counts[""], counts["other"])
