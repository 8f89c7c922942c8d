"""The report of a distillation: the segmenter and the distilled model side by side on a text"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import torch

from dpe.corpus_run.piece_counts import SegmenterText
from dpe.errors import UserError, refuse
from dpe.evaluation.agreement import (
    DISTILLED,
    SEGMENTER,
    Agreement,
    agreement_figures,
    agreement_sections,
    measure_agreement,
)
from dpe.evaluation.html_page import write_report
from dpe.evaluation.morphology import read_gold
from dpe.evaluation.plots import save_figures
from dpe.evaluation.tables import to_json
from dpe.files import whole_text_file
from dpe.segmenter.distillation import unigram_boundaries
from dpe.segmenter.segmenter import Segmenter
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.text_file import Text
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session

LINES = 2_000  # of the text, at most
_LEARNED_LINES = 100_000  # of each side, from which the unigram vocabulary is learned
Result = TypeVar("Result")


def write_distillation_report(
    directory: Path,
    *,
    segmenter: Path | str,
    distilled: Vocabulary,
    target: Text,
    source: Text | None = None,
    gold: Path | None = None,
    session: Session = Session(),
) -> Agreement:
    """Write report.html, distill.json and figures about the first lines of a text, held out at best.

    The segmenter's time is that of its best segmentations, on one thread of a CPU.
    """
    known = None if gold is None else read_gold(gold)
    given = SegmenterText.open(Path(segmenter), source, target)
    pairs = list(islice(given.text, LINES))
    refuse((not any(pair.target.strip() for pair in pairs), "The text of the report has no words."))
    targets = [pair.target for pair in pairs]
    sources = None if given.text.source is None else [pair.source or "" for pair in pairs]
    progress = session.progress
    progress.say(f"segmenting {len(targets):,} lines for the report")
    model = Segmenter.load(segmenter, device=session.device)
    best, slow = _timed(lambda: model.best(sources, targets))
    cut, quick = _timed(lambda: list(map(distilled.encode, targets)))
    systems: dict[str, Sequence[Sequence[str]]] = {}
    if known is not None:
        systems = {
            name: [vocabulary.surfaces(vocabulary.encode(line)) for line in targets]
            for name, vocabulary in _count_based(given).items()
        }
    posteriors = [word for one in model.posterior(sources, targets) for word in one.words]
    probabilities = unigram_boundaries(distilled, {word.word for word in posteriors})
    result = measure_agreement(
        systems
        | {DISTILLED: [distilled.surfaces(pieces) for pieces in cut], SEGMENTER: [one.texts for one in best]},
        ((word.word, word.boundaries, probabilities[word.word]) for word in posteriors),
        lines_a_second={SEGMENTER: len(targets) / slow, DISTILLED: len(targets) / quick},
        gold=known,
    )
    with whole_text_file(directory / "distill.json") as file:
        file.write(to_json(result) + "\n")
    save_figures(agreement_figures(result), directory)
    lead = "How much of a segmenter is in the SentencePiece unigram model distilled from it."
    write_report(directory / "report.html", "Distillation", lead, agreement_sections(result))
    progress.say(f"{directory / 'report.html'}: {result.tokens_alike:.1%} of the tokens are cut alike")
    return result


def _count_based(given: SegmenterText) -> dict[str, Vocabulary]:
    """What else cuts into as many pieces: the segmenter's own vocabulary, and a unigram learned alike."""
    own = given.vocabulary
    if own.type == "unigram":
        return {"unigram": own}
    sides = [given.text.target]
    if given.text.source is not None and own.is_joint:
        sides.insert(0, given.text.source)
    lines = chain.from_iterable(islice(side, _LEARNED_LINES) for side in sides)
    found = {"BPE": own}
    with suppress(UserError):  # the text may be too small for so many pieces
        settings = VocabularySettings(size=len(own), type="unigram", normalization=own.normalization)
        found["unigram"] = learn_vocabulary(lines, settings)
    return found


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What it gives, and its seconds with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        begin = time.perf_counter()
        return work(), time.perf_counter() - begin
    finally:
        torch.set_num_threads(threads)
