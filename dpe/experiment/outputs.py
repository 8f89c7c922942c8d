"""What the trained models of an experiment produce: segmentations, translations, scores, tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpe.corpus_run.distillation import distill
from dpe.evaluation.comparison import compare_files
from dpe.evaluation.scores import SystemOutput, bleu_by_length, paired_bootstrap, read_reference, score
from dpe.evaluation.segmented_text import count_marked_words
from dpe.evaluation.word_frequency import bootstrap_by_frequency, f1_by_frequency, read_counts
from dpe.experiment.artifacts import write_json
from dpe.experiment.recipe import Split
from dpe.experiment.texts import Texts
from dpe.segmenter.settings import SegmentSettings
from dpe.text.corpus import read_lines, write_lines
from dpe.text.formats import format_pieces
from dpe.text.segmenters import OwnCut
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session
from dpe.translator.settings import Search
from dpe.translator.targets import KeptCuts
from dpe.translator.translator import Translator

CUTS = "cuts"  # in a segmenter's directory: the targets that it made
DISTILLED = "distilled.model"
EXAMPLES, SCORES, TESTS = "examples.json", "scores.json", "significance.json"


def pieces_file(split: Split) -> str:
    return f"{split}.pieces"


def cut_by_vocabulary(directory: Path, vocabulary: Path, texts: Texts, splits: tuple[Split, ...]) -> None:
    """The targets in the vocabulary's own segmentation."""
    loaded = Vocabulary.load(vocabulary)
    segmenter = OwnCut(loaded)
    for split in splits:
        lines = read_lines(texts.prepared(split, texts.target))
        cut = (format_pieces(segmenter.cut(line), "pieces", loaded) for line in lines)
        write_lines(directory / pieces_file(split), cut)


def cut_by_segmenter(
    directory: Path, segmenter: Path, texts: Texts, splits: tuple[Split, ...], session: Session
) -> None:
    """The targets in a segmenter's best segmentation given the plain source (the paper's fixed DPE).

    Kept in the segmenter's directory too, where the translators of fixed DPE find the training text.
    """
    for split in splits:
        text = texts.open(split, cache=segmenter / "cache")
        kept = KeptCuts(segmenter, text, segmenter / CUTS, session)
        write_lines(directory / pieces_file(split), read_lines(kept.make(SegmentSettings())))


def distil(
    directory: Path,
    segmenter: Path,
    texts: Texts,
    splits: tuple[Split, ...],
    session: Session,
    *,
    with_source: bool,
) -> None:
    """A segmenter distilled on the training text, and the targets as the distilled model segments them."""
    source, target = texts.prepared_pair("train")
    distill(
        directory / DISTILLED,
        segmenter=segmenter,
        source=source if with_source else None,
        target=target,
        session=session,
    )
    cut_by_vocabulary(directory, directory / DISTILLED, texts, splits)


def training_counts(vocabulary: Path, texts: Texts) -> Counter[str]:
    """How often each target word occurs in the training text, as the segmented texts write it."""
    lines = read_lines(texts.prepared("train", texts.target))
    return count_marked_words(map(Vocabulary.load(vocabulary).normalize, lines))


def write_examples(directory: Path, plain: Path, counts: Mapping[str, int], split: Split) -> dict[str, Any]:
    """The most frequent words that two segmenters segment differently (the paper's table 4)."""
    found = compare_files(
        plain / pieces_file(split), directory / pieces_file(split), train_counts=counts
    ).comparison
    write_json(directory / EXAMPLES, [asdict(word) for word in found.top])
    return {
        "compared": split,
        "different_words": found.different_tokens / max(found.tokens, 1),
        "pieces_per_word": {"bpe": found.pieces_per_word_a, "this": found.pieces_per_word_b},
    }


def translate_texts(
    directory: Path, translator: Path, texts: Texts, search: Search, session: Session
) -> None:
    """Translations of all texts that are scored."""
    model = Translator.load(translator, threads=session.threads)

    def translated(source: Path) -> Iterator[str]:
        for found in session.progress.track(model.stream(read_lines(source), search), "translating"):
            yield found[0].text

    for name in texts.evaluated:
        write_lines(directory / f"{name}.{texts.target}", translated(texts.plain(name, texts.source)))


def write_scores(directory: Path, translations: Path, texts: Texts, tokenize: str) -> dict[str, Any]:
    """BLEU and chrF2 of each text with their signatures, by length of the reference, by word frequency."""
    counts, scores = read_counts(texts.word_counts), {}
    for name in texts.evaluated:
        translation, reference = _read(translations, name, texts), _reference(name, texts)
        lengths = bleu_by_length([translation], reference, tokenize=tokenize)
        bands = f1_by_frequency([translation], reference, counts, tokenize=tokenize)
        scores[name] = asdict(score(translation, reference, tokenize)) | {
            "by_length": [asdict(part) | {"bleu": part.bleu[translation.name]} for part in lengths],
            "by_frequency": [asdict(band) | {"f1": band.f1[translation.name]} for band in bands],
        }
    write_json(directory / SCORES, scores)
    return scores


def write_tests(
    directory: Path,
    translations: Sequence[Path],
    baseline: Sequence[Path],
    texts: Texts,
    tokenize: str,
    *,
    names: Sequence[str],
) -> dict[str, Any]:
    """One seed against the baseline's, or the mean of several, on the texts of these names."""
    counts, tests = read_counts(texts.word_counts), []
    for name in names:
        reference = _reference(name, texts)
        ours, others = ([_read(path, name, texts) for path in side] for side in (translations, baseline))
        found = [
            *paired_bootstrap(ours, others, reference, tokenize=tokenize),
            *bootstrap_by_frequency(ours, others, reference, counts, tokenize=tokenize),
        ]
        tests += [asdict(test) | {"text": name} for test in found]
    write_json(directory / TESTS, {"tests": tests})
    return {"tests": tests}


def _reference(name: str, texts: Texts) -> list[str]:
    return read_reference(texts.plain(name, texts.target))


def _read(translations: Path, name: str, texts: Texts) -> SystemOutput:
    return SystemOutput("this", list(read_lines(translations / f"{name}.{texts.target}")))
