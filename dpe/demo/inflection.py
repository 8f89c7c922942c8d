"""How Finnish words inflect, as surface morphs, and the few English forms that go with them.

Every form is a tuple of surface morphs that join to the word: `kala` in the plural inessive is `kalo i ssa`.
Suffixes are written here with back vowels and take the front ones where vowel harmony asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Morphs = tuple[str, ...]

THIRD_SINGULAR, THIRD_PLURAL = 2, 5  # persons are numbered I, you, she, we, you all, they


@dataclass(frozen=True)
class Phrase:
    """Words that say the same in both languages."""

    english: str
    words: tuple[Morphs, ...]


class Case(Enum):
    """The Finnish cases in use; the value is the suffix where one suffix says it all."""

    NOMINATIVE = ""
    GENITIVE = "n"
    PARTITIVE = "a"
    INESSIVE = "ssa"
    ELATIVE = "sta"
    ILLATIVE = "Vn"
    ADESSIVE = "lla"
    ABLATIVE = "lta"
    ALLATIVE = "lle"


@dataclass(frozen=True)
class Declension:
    """What the stem does before the plural -i-, and which partitive it takes."""

    plural_change: str  # keep, drop (the last vowel), round (a to o), lower (i to e), shorten (a long vowel)
    partitive: str = "a"
    plural_partitive: tuple[str, ...] = ("j", "a")


DECLENSIONS = {
    "talo": Declension("keep"),
    "museo": Declension("keep", "ta", ("i", "ta")),
    "tuoli": Declension("lower"),
    "kaveri": Declension("lower", "a", ("i", "ta")),
    "kala": Declension("round"),
    "kitara": Declension("round", "a", ("i", "ta")),
    "koira": Declension("drop", "a", ("i", "a")),
    "nopea": Declension("drop", "a", ("i", "ta")),
    "puu": Declension("shorten", "ta", ("i", "ta")),
}


def harmonise(suffix: str, stem: str) -> str:
    """The suffix with a, o, u turned to ä, ö, y unless the stem has a back vowel itself."""
    if any(vowel in stem for vowel in "aou"):
        return suffix
    return suffix.translate(str.maketrans("aou", "äöy"))


def change(stem: str, how: str) -> str:
    """The stem before a plural or past -i-: `kala` rounded is `kalo`, `puu` shortened is `pu`."""
    if how == "round":
        return stem[:-1] + harmonise("o", stem)
    if how == "shorten":
        return stem[:-2] + stem[-1]
    return {"keep": stem, "drop": stem[:-1], "lower": stem[:-1] + "e"}[how]


@dataclass(frozen=True)
class Nominal:
    """A noun or an adjective: `parts` are the first members of a compound, which never inflect."""

    parts: tuple[str, ...]
    stem: str
    declension: Declension

    def inflect(self, case: Case, *, plural: bool = False, owner: int | None = None) -> Morphs:
        """One form as morphs; `owner` is the person of the possessive suffix."""
        ending = self._plural(case) if plural else self._singular(case)
        if owner is not None:
            ending = self._possessed(case, ending, owner)
        suffixes = (harmonise(suffix, self.stem) for suffix in ending[1:])
        return (*self.parts, ending[0], *suffixes)

    def _singular(self, case: Case) -> Morphs:
        if case is Case.NOMINATIVE:
            return (self.stem,)
        if case is Case.PARTITIVE:
            return (self.stem, self.declension.partitive)
        if case is Case.ILLATIVE:
            breath = "h" if self.declension.plural_change == "shorten" else ""
            return (self.stem, f"{breath}{self.stem[-1]}n")
        return (self.stem, case.value)

    def _plural(self, case: Case) -> Morphs:
        stem = change(self.stem, self.declension.plural_change)
        if case is Case.NOMINATIVE:
            return (self.stem, "t")
        if case is Case.PARTITIVE:
            return (stem, *self.declension.plural_partitive)
        if case is Case.ILLATIVE:
            return (stem, "i", "hin" if stem[-1] in "aeiouyäö" else "in")
        if case is Case.GENITIVE:
            raise ValueError("the genitive plural is not part of the grammar")
        return (stem, "i", case.value)

    def _possessed(self, case: Case, ending: Morphs, owner: int) -> Morphs:
        """Nominative and genitive lose their suffix and the illative its -n before a possessive."""
        if case in (Case.NOMINATIVE, Case.GENITIVE):
            return (self.stem, _possessive(owner))
        if case is Case.ILLATIVE:
            return (*ending[:-1], ending[-1][:-1], _possessive(owner))
        surface = harmonise("".join(ending), self.stem)
        if owner in (THIRD_SINGULAR, THIRD_PLURAL) and surface[-1] != surface[-2]:
            return (*ending, f"{surface[-1]}n")  # talossaan, but kalaansa: no vowel is written three times
        return (*ending, _possessive(owner))


def _possessive(owner: int) -> str:
    return ("ni", "si", "nsa", "mme", "nne", "nsa")[owner]


@dataclass(frozen=True)
class Noun(Nominal):
    """`place` is how one is there: `s-in` takes the cases in -s- and English "in", `l-on` those in -l-."""

    kind: str
    place: str
    english: str
    gender: str  # "his", "her", "its", or empty where either of the first two may be said

    @property
    def is_mass(self) -> bool:
        return self.kind in ("drink", "mass")


@dataclass(frozen=True)
class Adjective(Nominal):
    """`kinds` are the kinds of noun that it can be said of."""

    kinds: frozenset[str]
    english: str


@dataclass(frozen=True)
class Verb:
    """A verb in one use: `frame` is the sentence pattern, `subjects` and `objects` the kinds that fit."""

    stem: str
    past: Morphs  # past stem and past suffix
    frame: str
    subjects: frozenset[str]
    objects: frozenset[str]
    english: str
    english_past: str

    def conjugate(self, person: int, *, past: bool) -> Morphs:
        """The finite form as morphs: (sano, n), (sano, o), (ava, si, mme)."""
        ending = harmonise(("n", "t", "", "mme", "tte", "vat")[person], self.stem)
        if past:
            return tuple(morph for morph in (*self.past, ending) if morph)
        if self.stem == "ole" and person in (THIRD_SINGULAR, THIRD_PLURAL):
            return ("on",) if person == THIRD_SINGULAR else ("o", "vat")
        if person == THIRD_SINGULAR:
            ending = "" if self.stem[-2] in "aeiouyäö" and not self._is_hiatus else self.stem[-1]
        return (self.stem, ending) if ending else (self.stem,)

    @property
    def _is_hiatus(self) -> bool:
        """Whether the last two vowels are two syllables (siivo-a, halu-a), so that -a can still lengthen."""
        return self.past[-1] == "si" and self.stem[-1] != self.stem[-2]


def english_plural(noun: str) -> str:
    """The regular plural and the few others that the lexicon needs."""
    for singular, plural in (("fish", "fish"), ("man", "men"), ("potato", "potatoes")):
        if noun.endswith(singular):
            return noun.removesuffix(singular) + plural
    return f"{noun[:-1]}ves" if noun.endswith(("shelf", "scarf")) else english_s(noun)


def english_s(word: str) -> str:
    """The word with -s, as plural or third person: studies, washes, goes."""
    if word.endswith("y") and word[-2] not in "aeou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh", "go")) else f"{word}s"


def english_ed(verb: str) -> str:
    """The regular past of a verb; what follows it ("look at") stays as it is."""
    first, *rest = verb.split()
    if first.endswith("y") and first[-2] not in "aeou":
        first = f"{first[:-1]}i"
    return " ".join([first + ("d" if first.endswith("e") else "ed"), *rest])
