"""Noun phrases and subjects of the built-in corpus, in both languages."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from dpe.demo.inflection import THIRD_PLURAL, THIRD_SINGULAR, Case, Morphs, Noun, Phrase, harmonise
from dpe.demo.lexicon import PRONOUNS, PRONOUNS_HAVING, adjectives_for, nouns_of, zipf_choice


@dataclass(frozen=True)
class Owner:
    """A possessor: the person of the Finnish suffix and the English determiner."""

    person: int
    english: str


@dataclass(frozen=True)
class Subject:
    """Who does it; the two languages may disagree on the verb's person ("I have" is "at me is")."""

    phrase: Phrase
    person: int
    english_person: int
    owner: Owner | None  # what "his own" is for this subject; none for "there"
    also: bool = False


SPEAKERS = (Owner(0, "my"), Owner(3, "our"), Owner(1, "your"))
PERSON = frozenset({"person"})


def noun_phrase(
    rng: random.Random,
    noun: Noun,
    case: Case,
    *,
    plural: bool = False,
    definite: bool = True,
    owner: Owner | None = None,
    clitic: str = "",
    adjective_chance: float = 0.25,
) -> Phrase:
    """Determiner or owner, adjective, noun; the adjective agrees in case and number, and takes no suffix."""
    words = [noun.inflect(case, plural=plural, owner=owner.person if owner else None)]
    if clitic:
        words[0] += (harmonise(clitic, noun.stem),)
    english = noun.named(plural=plural)
    if rng.random() < adjective_chance and (adjectives := adjectives_for(noun.kind)):
        adjective = zipf_choice(rng, adjectives)
        words.insert(0, adjective.inflect(case, plural=plural))
        english = f"{adjective.english} {english}"
    if owner:
        determiner = owner.english
    elif definite and noun.kind != "person" and rng.random() < 0.08:
        possessor = _noun_phrase_of_owner(rng)
        words[:0] = possessor.words
        determiner = possessor.english
    else:
        determiner = _article(english, plural or noun.is_mass, definite)
    too = {"": "", "kin": "too", "kaan": "either"}[clitic]
    return Phrase(" ".join(part for part in (determiner, english, too) if part), tuple(words))


def _noun_phrase_of_owner(rng: random.Random) -> Phrase:
    """A person in the genitive: "the teacher's", "my sister's"."""
    noun = zipf_choice(rng, nouns_of(PERSON))
    owner = rng.choice(SPEAKERS[:2]) if rng.random() < 0.25 else None
    word = noun.inflect(Case.GENITIVE, owner=owner.person if owner else None)
    return Phrase(f"{owner.english if owner else 'the'} {noun.english}'s", (word,))


def _article(following: str, is_plural_or_mass: bool, definite: bool) -> str:
    if definite:
        return "the"
    if is_plural_or_mass:
        return ""
    return "an" if following[0] in "aeiou" else "a"


def _pronoun(rng: random.Random, *, stressed: bool, having: bool = False) -> Subject:
    """A personal pronoun; Finnish leaves out the first and second person unless they are stressed."""
    person = rng.choices(range(6), weights=(30, 16, 25, 12, 6, 11))[0]
    gender = rng.choice(("he", "she"))
    english = ("I", "you", gender, "we", "you all", "they")[person]
    own = ("my", "your", "his" if gender == "he" else "her", "our", "your", "their")[person]
    word: Morphs = (PRONOUNS_HAVING if having else PRONOUNS)[person]
    word += ("kin",) if stressed else ()
    is_silent = not (stressed or having or person in (THIRD_SINGULAR, THIRD_PLURAL) or rng.random() < 0.1)
    phrase = Phrase(english, () if is_silent else (word,))
    return Subject(phrase, THIRD_SINGULAR if having else person, person, Owner(person, own), stressed)


def _noun_subject(
    rng: random.Random, kinds: frozenset[str], *, stressed: bool, having: bool = False
) -> Subject:
    """A noun phrase as subject, or as the one who has something (adessive)."""
    noun = zipf_choice(rng, nouns_of(kinds))
    plural = not noun.is_mass and rng.random() < 0.3
    person = THIRD_PLURAL if plural else THIRD_SINGULAR
    owner = rng.choice(SPEAKERS) if rng.random() < 0.15 else None
    case = Case.ADESSIVE if having else Case.NOMINATIVE
    phrase = noun_phrase(rng, noun, case, plural=plural, owner=owner, clitic="kin" if stressed else "")
    phrase = replace(phrase, english=phrase.english.removesuffix(" too"))  # "also", beside the verb
    own = "their" if plural else noun.gender or rng.choice(("his", "her"))
    return Subject(phrase, THIRD_SINGULAR if having else person, person, Owner(person, own), stressed)


def draw_subject(rng: random.Random, kinds: frozenset[str], *, having: bool = False) -> Subject:
    stressed = rng.random() < 0.06
    if "person" in kinds and rng.random() < 0.5:
        return _pronoun(rng, stressed=stressed, having=having)
    return _noun_subject(rng, kinds, stressed=stressed, having=having)
