"""The words of the built-in corpus: about 220 Finnish stems with their English, and how each inflects.

`lexicon.txt` has the words. A row of a table names a model word that shows the inflection, what the words
mean, and the words: `koulu+kirja:schoolbook` is the compound of `koulu` and the row's kind of word
`kirja`. Stems are chosen so that no consonant alternates; derivations (`opetta-ja`) are not split.
`inflection.py` makes the forms.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TypeVar

from dpe.demo.inflection import DECLENSIONS, Adjective, Noun, Phrase, Verb, change, english_ed

PRONOUNS = (("minä",), ("sinä",), ("hän",), ("me",), ("te",), ("he",))
_HAVING = "minu-lla sinu-lla häne-llä mei-llä tei-llä hei-llä"
PRONOUNS_HAVING = tuple(tuple(pronoun.split("-")) for pronoun in _HAVING.split())
NEGATIONS = (("e", "n"), ("e", "t"), ("ei",), ("e", "mme"), ("e", "tte"), ("ei", "vät"))


@cache
def _section(name: str) -> list[str]:
    """The lines of a section of lexicon.txt."""
    text = files("dpe.demo").joinpath("lexicon.txt").read_text(encoding="utf-8")
    lines = text.partition(f"[{name}]\n")[2].partition("\n[")[0].splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _rows(table: str) -> list[tuple[list[str], list[list[str]]]]:
    """The table's lines as (settings, words), a word being its fields with spaces for underscores."""
    rows = []
    for line in _section(table):
        settings, words = line.split(" | ")
        rows.append((settings.split(), [word.replace("_", " ").split(":") for word in words.split()]))
    return rows


def _nouns() -> list[Noun]:
    nouns = []
    for (model, kind, place), words in _rows("nouns"):
        for finnish, english, *gender in words:
            *parts, stem = finnish.split("+")
            pronoun = gender[0] if gender else "" if kind == "person" else "its"
            nouns.append(Noun(tuple(parts), stem, DECLENSIONS[model], kind, place, english, pronoun))
    return nouns


def _adjectives() -> list[Adjective]:
    return [
        Adjective((), stem, DECLENSIONS[model], frozenset(kinds.split(",")), english)
        for (model, kinds), words in _rows("adjectives")
        for stem, english in words
    ]


def _verbs() -> list[Verb]:
    verbs = []
    for (frame, past, subjects, objects), words in _rows("verbs"):
        for stem, english, *english_past in words:
            stems = (stem[:-1], "si") if past == "contract" else (change(stem, past), "i")
            kinds = frozenset(subjects.split(",")), frozenset(objects.split(","))
            verbs.append(Verb(stem, stems, frame, *kinds, english, *(english_past or [english_ed(english)])))
    return verbs


def _phrases(words: str) -> list[Phrase]:
    return [
        Phrase(english, (tuple(finnish.split("+")),))
        for finnish, english in (word.replace("_", " ").split(":") for word in words.split())
    ]


_Word = TypeVar("_Word", Noun, Adjective, Verb)
_Choice = TypeVar("_Choice")


def _ranked(words: list[_Word]) -> list[_Word]:
    """A fixed order of frequency: the commonest as listed, then the others in any order, compounds last."""
    random.Random(0).shuffle(words)
    listed = {stem: place for place, stem in enumerate(" ".join(_section("commonest")).split())}

    def rank(word: _Word) -> tuple[bool, int]:
        return isinstance(word, Noun) and word.parts != (), listed.get(word.stem, len(listed))

    return sorted(words, key=rank)


THAT = Phrase(" that", (("että",),))
LINKS = _phrases("ja:,_and mutta:,_but koska:_because kun:_when joten:,_so vaikka:_although")
FREQUENCIES = _phrases("usein:often aina:always yhä:still harvoin:rarely")
PRESENT_TIMES = _phrases(" ".join([*_section("times"), "nyt:now"]))
PAST_TIMES = _phrases(" ".join([*_section("times"), "eilen:yesterday"]))
NOUNS = _ranked(_nouns())
ADJECTIVES = _ranked(_adjectives())
VERBS = _ranked(_verbs())


def zipf_choice(rng: random.Random, words: Sequence[_Choice]) -> _Choice:
    """A word drawn with probability proportional to 1 / (rank + 1), ranks counting from 1."""
    return rng.choices(words, cum_weights=_cumulative_weights(len(words)))[0]


@cache
def _cumulative_weights(count: int) -> list[float]:
    total, sums = 0.0, []
    for rank in range(1, count + 1):
        total += 1 / (rank + 1)
        sums.append(total)
    return sums


@cache
def nouns_of(kinds: frozenset[str], *, places: bool = False) -> tuple[Noun, ...]:
    """The nouns of these kinds, most frequent first; only those one can be at if `places`."""
    return tuple(noun for noun in NOUNS if noun.kind in kinds and (noun.place != "-" or not places))


@cache
def adjectives_for(kind: str) -> tuple[Adjective, ...]:
    """The adjectives that can be said of this kind of noun, most frequent first."""
    return tuple(adjective for adjective in ADJECTIVES if kind in adjective.kinds)
