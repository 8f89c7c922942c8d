"""What a segmenter expects of a text, piece by piece: the corpus run that `distill` and pruning share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpe.choices import CountsOf
from dpe.corpus_run.lines import PieceCounter
from dpe.corpus_run.run import WHOLE, Shard, segmenter_run
from dpe.errors import refuse
from dpe.model.checkpoint import load_vocabulary, read_settings
from dpe.model.settings import model_settings
from dpe.segmenter.distillation import PieceCounts
from dpe.segmenter.settings import SegmenterSettings, SegmentSettings
from dpe.settings import changed
from dpe.text.text_file import ParallelText, Text
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session


def segmented_file(out: Path) -> Path:
    """Where the segmenter's own segmentation of the text is, beside the model that is made from it."""
    return out.with_name(out.name + ".pieces.gz")


@dataclass(frozen=True)
class SegmenterText:
    """A trained segmenter's directory, its vocabulary, and a text with a source if it needs one."""

    directory: Path
    vocabulary: Vocabulary
    text: ParallelText

    @classmethod
    def open(cls, directory: Path, source: Text | None, target: Text) -> SegmenterText:
        record = read_settings(directory, "segmenter")
        has_source = model_settings(record, SegmenterSettings, str(directory)).source
        refuse(
            (
                source is not None and not has_source,
                f"{directory} was trained without a source; leave it out.",
            ),
            (source is None and has_source, f"{directory} was trained with a source; give the source too."),
        )
        return cls(directory, load_vocabulary(directory, record), ParallelText.open(source, target))

    def counts(
        self,
        out: Path,
        words: Collection[str],
        asked: Mapping[str, Any],
        *,
        counts: CountsOf,
        session: Session,
        batch_characters: int,
        force: bool,
        bf16: bool = False,
        lines: Shard = WHOLE,
    ) -> PieceCounts:
        """Count the pieces of the target, apart for these words and all others.

        The segmenter's best segmentation is written beside `out`. Its record has the counts: there a killed
        run resumes, a second one is spared the network, and shards are joined. `asked` goes into it.
        """
        settings = SegmentSettings(bf16=bf16)
        answerer = partial(PieceCounter, self.directory.absolute(), settings, counts, frozenset(words))
        with segmenter_run(answerer, self.directory, session, batch_characters, bf16=bf16) as (run, about):
            asked = {**asked, **changed(settings), "text": self.text.describe(), **about}
            totals = run.write(self.text, segmented_file(out), asked, force=force, lines=lines).totals
        found = {kind: np.zeros(len(self.vocabulary)) for kind in ("", "other")}
        for key, value in totals.items():
            kind, _, piece = key.rpartition(" ")
            found[kind][int(piece)] = value
        return PieceCounts(found[""], found["other"])
