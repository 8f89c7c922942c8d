"""The built-in corpus: generated English-Finnish sentence pairs whose Finnish morphemes are known.

The text is generated, not collected: real words and correct forms, but a small grammar's idea of what
people say. It serves demos and tests, where a ground truth is worth more than realism; a score on it
says nothing about real text. A pair is one or two clauses; words are drawn by Zipf's law and features
(number, case, possessor, clitic, person, tense) by fixed chances, so most inflected forms are rare:

    there are dogs in our houses too.    taloissammekin on koiria.    talo i ssa mme kin, on, koir i a

Text is lower-case (but English "I" and "Monday") with punctuation attached to the words. One pattern
alone, "she bought the book in the village" (6 persons, 2 tenses, 12 verbs with 683 objects in all, 60
places), has 491,760 pairs before number, adjectives, owners and clitics; two clauses square that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from dpe.demo.clauses import REPORTS, any_clause, verb_clause
from dpe.demo.inflection import Morphs, Phrase
from dpe.demo.lexicon import LINKS, THAT, zipf_choice
from dpe.errors import UserError
from dpe.files import whole_text_file

GOLD = "gold.tsv"
LARGEST_HELD_OUT = 500
REPEATS_BEFORE_GIVING_UP = 10_000


@dataclass(frozen=True)
class GoldPair:
    """One sentence in both languages; `morphs` has one tuple per Finnish word, punctuation left out."""

    source: str
    target: str
    morphs: tuple[Morphs, ...]


@dataclass(frozen=True)
class CorpusReport:
    """What `write_corpus` wrote: pairs per split and distinct Finnish words."""

    train: int
    dev: int
    test: int
    words: int

    def __str__(self) -> str:
        return f"{self.train:,} training, {self.dev:,} dev and {self.test:,} test pairs, {self.words:,} words"


def _sentence(rng: random.Random) -> GoldPair:
    """A clause, a question, two clauses joined, or a clause that is reported; all in one tense."""
    kind, past = rng.random(), rng.random() < 0.42
    if kind < 0.1:
        return _pair(any_clause(rng, asking=True, past=past), end="?")
    if kind < 0.18:
        report = verb_clause(rng, zipf_choice(rng, REPORTS), asking=False, past=past)
        return _pair(report, THAT, any_clause(rng, past=past))
    if kind < 0.33:
        return _pair(any_clause(rng, past=past), zipf_choice(rng, LINKS), any_clause(rng, past=past))
    return _pair(any_clause(rng, past=past))


def _pair(first: Phrase, link: Phrase = THAT, second: Phrase | None = None, *, end: str = ".") -> GoldPair:
    if second is None:
        return GoldPair(first.english + end, _text(first.words) + end, first.words)
    words = link.words + second.words  # Finnish has a comma between clauses whatever the link is
    source = f"{first.english}{link.english} {second.english}{end}"
    return GoldPair(source, f"{_text(first.words)}, {_text(words)}{end}", first.words + words)


def _text(words: tuple[Morphs, ...]) -> str:
    return " ".join("".join(morphs) for morphs in words)


def generate(pairs: int, *, seed: int) -> Iterator[GoldPair]:
    """That many pairs, no two with the same English or the same Finnish line; a function of the seed.

    Repeats are drawn again, so a larger corpus has relatively more of the rare sentences.
    """
    _check_size(pairs)
    rng = random.Random(seed)
    return _distinct((_sentence(rng) for _ in count()), pairs)


def _check_size(pairs: int) -> None:
    if pairs < 1:
        raise UserError(f"A corpus must have at least 1 pair, got {pairs}.")


def _distinct(draws: Iterator[GoldPair], pairs: int) -> Iterator[GoldPair]:
    """The first `pairs` of the draws that repeat no line of either language."""
    seen: set[str] = set()
    for made in range(pairs):
        for pair in islice(draws, REPEATS_BEFORE_GIVING_UP):
            if f"en {pair.source}" not in seen and f"fi {pair.target}" not in seen:
                break
        else:
            raise UserError(
                f"The grammar produced only {made} distinct pairs of the {pairs} requested; ask for fewer."
            )
        seen.update((f"en {pair.source}", f"fi {pair.target}"))
        yield pair


def write_corpus(directory: Path, *, pairs: int, seed: int, replace: bool = False) -> CorpusReport:
    """Write train, dev and test as `.en` and `.fi`, and `gold.tsv` with the morphs of all Finnish words.

    `pairs` is the size of train; dev and test have 500 pairs each, or a twentieth of train if that is
    fewer (at least one). A word with two analyses keeps the first. Unless `replace`, an existing file with
    other text is refused before any file is written.
    """
    _check_size(pairs)
    held_out = min(LARGEST_HELD_OUT, max(1, pairs // 20))
    corpus = list(generate(pairs + 2 * held_out, seed=seed))
    gold: dict[str, Morphs] = {}
    for morphs in (morphs for pair in corpus for morphs in pair.morphs):
        gold.setdefault("".join(morphs), morphs)
    # later draws are rarer sentences, because repeats are drawn again: give each split its share
    random.Random(seed).shuffle(corpus)
    splits = {
        "dev": corpus[:held_out],
        "test": corpus[held_out : 2 * held_out],
        "train": corpus[2 * held_out :],
    }
    texts = {GOLD: _joined(f"{word}\t{' '.join(gold[word])}" for word in sorted(gold))}
    for name, split in splits.items():
        texts[f"{name}.en"] = _joined(pair.source for pair in split)
        texts[f"{name}.fi"] = _joined(pair.target for pair in split)
    for name, text in texts.items():
        path = directory / name
        if not replace and path.exists() and (not path.is_file() or path.read_bytes() != text.encode()):
            raise UserError(f"{path} already exists with other text; choose another --out, or remove it.")
    for name, text in texts.items():
        with whole_text_file(directory / name) as file:
            file.write(text)
    return CorpusReport(train=pairs, dev=held_out, test=held_out, words=len(gold))


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
