"""What the segmenter of a run does: sentences beside the vocabulary's own, one in depth, morphology."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dpe.choices import CountMethod, VocabularyType
from dpe.errors import UserError
from dpe.evaluation.morphology import evaluate_systems, read_gold, tally
from dpe.evaluation.segmented_text import read_pieces
from dpe.evaluation.tables import Table
from dpe.experiment.outputs import pieces_file
from dpe.experiment.results import read_run_recipe
from dpe.experiment.systems import DISTILLED_TITLE, OWN_TITLES, SEGMENTER_TITLES
from dpe.experiment.texts import Texts
from dpe.segmenter.segmenter import Segmenter
from dpe.text.corpus import read_lines
from dpe.text.draws import Draw
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.segmenters import make_segmenter

_COUNT_SYSTEMS: dict[VocabularyType, dict[str, CountMethod]] = {
    "bpe": {"BPE": "bpe", "BPE dropout": "bpe-dropout", "longest match": "longest-match"},
    "unigram": {"unigram": "unigram"},
}
_N_BEST = 3


class ShownRun:
    """A finished `dpe run` with a segmenter, and its test text."""

    def __init__(self, root: Path) -> None:
        self.root = root
        recipe = read_run_recipe(root)
        texts = Texts.of_run(root, recipe)
        if "test" not in recipe.cut:
            raise UserError(f"{root} has not segmented its test text; run it with --set 'cut=[\"test\"]'.")
        self.gold = texts.gold
        self.normalization = recipe.vocabulary.normalization
        self.train = texts.prepared_pair("train")
        self.sources, self.targets = (list(read_lines(path)) for path in texts.prepared_pair("test"))
        names = [system.segmenter for system in recipe.systems if system.segmenter]
        if not names:
            raise UserError(f"{root} has no system with a segmenter, so there is nothing to show.")
        self.name = "mixed" if "mixed" in names else names[0]
        self.title = SEGMENTER_TITLES[self.name]
        self.segmenter = Segmenter.load(root / "segmenters" / self.name)

    def sentences(self, count: int) -> list[str]:
        """Sentences that vocabulary and segmenter segment differently, then the first of them in depth."""
        vocabulary = self.segmenter.vocabulary
        cut = zip(self.sources, self.targets, self._dpe_lines(), strict=True)
        different = ((x, y, dpe) for x, y, dpe in cut if vocabulary.encode(y) != dpe)
        shown = list(islice(different, count))
        blocks = [
            f"source  {source}\n{OWN_TITLES[vocabulary.type]:8}{' '.join(vocabulary.encode(target))}\n"
            f"{self.title:8}{' '.join(dpe)}"
            for source, target, dpe in shown
        ]
        return blocks + ([self._in_depth(*shown[0][:2])] if shown else [])

    def _in_depth(self, source: str, target: str) -> str:
        """The best segmentations of a sentence, and the probability of each boundary word by word."""
        given = source if self.segmenter.has_source else None
        best = self.segmenter.n_best(given, target, n=_N_BEST)
        cuts = [f"  {cut.probability:6.1%}  {' '.join(cut.pieces)}" for cut in best]
        words = str(self.segmenter.posterior(given, target)).splitlines()
        return "\n".join(
            [
                f"The {len(best)} best segmentations of: {target}",
                *cuts,
                "Probability of a boundary in percent, and entropy in nats, word by word:",
                *(f"  {word}" for word in words),
            ]
        )

    def _dpe_lines(self) -> list[list[str]]:
        path = self.root / "segmentations" / self.name / "test.pieces"
        return [line.split(" ") if line else [] for line in read_lines(path)]

    def morphology(self, gold: Path) -> Table:
        """Boundaries of the test text against gold morphemes, beside every count-based segmenter."""
        known = read_gold(gold)
        tallies = {name: tally(lines, known) for name, lines in self._systems().items()}
        over_types, over_tokens = (one.systems for one in evaluate_systems(tallies)[:2])  # of all words
        rows = [
            [
                types.name,
                f"{types.scores.pieces_per_word:.2f}",
                *(f"{100 * share:.1f}" for share in (types.scores.precision, types.scores.recall)),
                f"{100 * types.scores.f1:.1f}",
                f"{100 * tokens.scores.f1:.1f}",
            ]
            for types, tokens in zip(over_types, over_tokens, strict=True)
        ]
        columns = ["cut by", "pieces per word", "precision", "recall", "F1", "F1 over tokens"]
        words = over_types[0].scores.words
        title = f"Boundaries against the gold morphemes of {words:,} words of test, over types"
        return Table(title, columns, rows, frozenset({"cut by"}))

    def _systems(self) -> dict[str, Sequence[Sequence[str]]]:
        """The test text segmented in every way, each type with a vocabulary of the segmenter's size."""
        cuts: dict[str, Sequence[Sequence[str]]] = {}
        for type, systems in _COUNT_SYSTEMS.items():
            vocabulary = self.segmenter.vocabulary
            with suppress(UserError):  # a text may be too small for a unigram vocabulary of that size
                if vocabulary.type != type:
                    settings = VocabularySettings(
                        size=len(vocabulary), type=type, normalization=self.normalization
                    )
                    vocabulary = learn_vocabulary(self.train, settings)
                for name, method in systems.items():
                    cut = make_segmenter(method, vocabulary).cut
                    cuts[name] = [cut(line, Draw(line=number)) for number, line in enumerate(self.targets)]
        distilled = self.root / "distilled" / self.name / pieces_file("test")
        if distilled.exists():
            cuts[DISTILLED_TITLE.format(self.title)] = list(read_pieces(distilled, "pieces"))
        return cuts | {self.title: self._dpe_lines()}
