"""Which vocabulary DPE should segment over: gold boundaries with BPE, unigram and pruned pieces.

    python -m benchmarks.vocabularies train tatoeba-en-fi unigram   one of the trainings; can be resumed
    python -m benchmarks.vocabularies show                          the table

A segmenter (preset `tiny`, `decoder = words`, sources segmented plainly, so that the pieces alone differ) is
trained over each vocabulary until less than 1 % of the development words are segmented differently than 100
updates before, or for `--updates`, and is then distilled. `pruned` is a unigram vocabulary of four times as
many pieces, pruned by a segmenter that was trained in the same way. Pieces are counted in the first `--lines`
lines of the training text.

All segmentations are of lines that were not trained on; a word counts once for each time it occurs. The gold
of German and of real Finnish has derivations only: read its recall. The texts are those of `../shared`, and
the built-in corpus.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.convergence import DATA, STOP_BELOW, TRIALS, Trial
from benchmarks.record import record
from benchmarks.subjects import CACHE
from dpe.corpus_run.distillation import distill
from dpe.corpus_run.pruning import prune_vocabulary
from dpe.demo.grammar import write_corpus
from dpe.evaluation.morphology import boundary_scores, read_gold, tally
from dpe.files import whole_text_file
from dpe.progress import Progress
from dpe.segmenter.segmenter import Segmenter
from dpe.segmenter.settings import SEGMENTER_PRESETS, SegmenterSettings
from dpe.segmenter.training import train_segmenter
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session

KINDS = ("bpe", "unigram", "pruned")
DEMO = "built-in en-fi"
DEMO_PAIRS = 20_000
TEXTS = {
    DEMO: Trial("demo", "en", "fi", "gold.tsv"),
    **{name: TRIALS[name] for name in ("multi30k-en-de", "multi30k-de-en", "softloc-en-hu")},
    "tatoeba-en-fi": Trial("tatoeba/en-fi", "en", "fi", "fi.morphynet-deriv.tsv.gz"),
}
PIECES = {name: 1_000 if name == DEMO else 4_000 for name in TEXTS}
TIMES_AS_MANY = 4  # pieces of the vocabulary that is pruned
SETTINGS = replace(
    SEGMENTER_PRESETS["tiny"],
    decoder="words",
    batch=6_000,
    source_dropout=0.0,
    epochs=None,
    steps=1_000,
    evaluate_updates=100,
    until_cuts_change_less_than=STOP_BELOW,
)
SESSION = Session(threads=1, workers=1, progress=Progress())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=CACHE / "vocabularies", help="of trainings, read by show")
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("text", choices=TEXTS)
    training.add_argument("kind", choices=KINDS)
    training.add_argument("--updates", type=int, default=SETTINGS.steps, help="at most")
    training.add_argument("--lines", type=int, default=20_000, help="in which pieces are counted")
    commands.add_parser("show")
    arguments = parser.parse_args()
    if arguments.command == "train":
        corpus = Corpus(arguments.out, arguments.text, arguments.lines)
        settings = replace(SETTINGS, steps=arguments.updates)
        train(arguments.out, arguments.text, arguments.kind, corpus, settings)
    else:
        show(arguments.out)


class Corpus:
    """The lines of a text, and its gold."""

    def __init__(self, out: Path, name: str, lines: int) -> None:
        self._trial, self._demo = TEXTS[name], out / "demo" if name == DEMO else None
        if self._demo:
            write_corpus(self._demo, pairs=DEMO_PAIRS, seed=1)
        self.train = self.pairs("train")
        self.dev = self.pairs("dev")
        self.counted = {"source": self.train[0][:lines], "target": self.train[1][:lines]}

    def pairs(self, *parts: str) -> tuple[list[str], list[str]]:
        """The lines of some parts: of the source, and of the target."""
        languages = (self._trial.source, self._trial.target)
        source, target = ([line for part in parts for line in self._lines(part, one)] for one in languages)
        return source, target

    def _lines(self, part: str, language: str) -> list[str]:
        if self._demo:
            return (self._demo / f"{part}.{language}").read_text("utf-8").splitlines()
        return self._trial.lines(part, language)

    def held_out(self) -> tuple[list[str], list[str]]:
        return self.pairs(*self._trial.held_out)

    def scores(self, segmented: Iterable[Sequence[str]]) -> dict[str, float]:
        """Of the boundaries of the held-out targets, whose pieces are given."""
        gold = read_gold(self._demo / "gold.tsv" if self._demo else DATA / "morph" / self._trial.gold)
        return asdict(boundary_scores(tally(segmented, gold), by_type=False))


def train(out: Path, name: str, kind: str, corpus: Corpus, settings: SegmenterSettings) -> None:
    """Train a segmenter over one kind of pieces, distil it, and score all segmentations."""
    label = f"{name.replace(' ', '-')}-{kind}"
    vocabulary = pieces_of(out, name, kind, corpus, settings)
    updates = trained(out / label, vocabulary, corpus, settings)
    segmenter = Segmenter.load(out / label)
    path = out / f"{label}.distilled.model"
    distilled = distill(path, segmenter=out / label, session=SESSION, **corpus.counted)
    sources, targets = corpus.held_out()
    found = {
        "own": corpus.scores(vocabulary.encode(line) for line in targets),
        "dpe": corpus.scores(one.pieces for one in segmenter.best(sources, targets)),
        "distilled": corpus.scores(distilled.encode(line) for line in targets),
    }
    with whole_text_file(out / f"{label}.json") as file:
        json.dump({"pieces": len(vocabulary), "updates": updates, "scores": found}, file, indent=1)
    print(json.dumps(found, indent=1))


def pieces_of(out: Path, name: str, kind: str, corpus: Corpus, settings: SegmenterSettings) -> Vocabulary:
    path = out / f"{name.replace(' ', '-')}-{kind}.model"
    if not path.exists():
        source, target = corpus.train
        out.mkdir(parents=True, exist_ok=True)
        if kind == "pruned":
            large = out / f"{name.replace(' ', '-')}-large"
            many = VocabularySettings(size=TIMES_AS_MANY * PIECES[name], type="unigram")
            trained(large, learn_vocabulary([*source, *target], many), corpus, settings)
            prune_vocabulary(path, segmenter=large, size=PIECES[name], session=SESSION, **corpus.counted)
        else:
            own = VocabularySettings(size=PIECES[name], type="bpe" if kind == "bpe" else "unigram")
            learn_vocabulary([*source, *target], own).save(path)
    return Vocabulary.load(path)


def trained(directory: Path, vocabulary: Vocabulary, corpus: Corpus, settings: SegmenterSettings) -> int:
    """Train a segmenter until its segmentations settle; gives the updates."""
    (source, target), (dev_source, dev_target) = corpus.train, corpus.dev
    train_segmenter(
        directory,
        vocabulary=vocabulary,
        source=source,
        target=target,
        dev_source=dev_source,
        dev_target=dev_target,
        settings=settings,
        session=SESSION,
    )
    curve = (directory / "training.jsonl").read_text("utf-8").splitlines()
    return max(int(json.loads(line)["step"]) for line in curve)


def show(out: Path) -> None:
    """Print and record the table; what has not been trained is left out."""
    numbers: dict[str, Any] = {"preset": "tiny", "decoder": "words", "threads": 1, "texts": {}}
    print("| text | pieces | updates | system | precision | recall | F1 | pieces a word | gain kept |")
    print("| --- " * 9 + "|")
    for name in TEXTS:
        found = {}
        for kind in KINDS:
            path = out / f"{name.replace(' ', '-')}-{kind}.json"
            if path.exists():
                found[kind] = json.loads(path.read_text("utf-8"))
                print_rows(name, kind, found[kind])
        numbers["texts"][name] = found
    record("vocabularies", numbers)


SYSTEMS = {"own": "{kind}", "dpe": "DPE over {kind}", "distilled": "distilled from DPE over {kind}"}


def print_rows(name: str, kind: str, found: Mapping[str, Any]) -> None:
    """One row a system; at last how much of DPE's gain in F1 (in recall) the distilled model keeps."""
    scores = found["scores"]
    for system, label in SYSTEMS.items():
        one, kept = scores[system], ""
        if system == "distilled":
            shares = (kept_share(scores, field) for field in ("f1", "recall"))
            kept = "{} ({})".format(*("" if share is None else f"{share:.0%}" for share in shares))
        print(
            f"| {name} | {found['pieces']:,} | {found['updates']:,} | {label.format(kind=kind)} "
            f"| {one['precision']:.1%} | {one['recall']:.1%} | {one['f1']:.1%} "
            f"| {one['pieces_per_word']:.2f} | {kept} |"
        )


def kept_share(scores: Mapping[str, Mapping[str, float]], field: str) -> float | None:
    """Which share of DPE's gain over the vocabulary's own segmentation the distilled model has."""
    own, dpe, distilled = (scores[system][field] for system in SYSTEMS)
    return (distilled - own) / (dpe - own) if dpe > own else None


if __name__ == "__main__":
    main()
