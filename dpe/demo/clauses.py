"""The clauses of the built-in corpus in both languages: noun phrases, subjects, complements, verbs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from dpe.demo.inflection import (
    THIRD_PLURAL,
    THIRD_SINGULAR,
    Case,
    Morphs,
    Noun,
    Phrase,
    Verb,
    english_plural,
    english_s,
    harmonise,
)
from dpe.demo.lexicon import (
    FREQUENCIES,
    NEGATIONS,
    PAST_TIMES,
    PRESENT_TIMES,
    PRONOUNS,
    PRONOUNS_HAVING,
    VERBS,
    adjectives_for,
    nouns_of,
    zipf_choice,
)


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


@dataclass(frozen=True)
class Clause:
    """What is settled before the words of a clause are chosen."""

    rng: random.Random
    subject: Subject
    past: bool
    mood: str  # statement, negative, question
    clitic: str  # kin, kaan or nothing, for the last complement

    def happens(self, chance: float) -> bool:
        return self.rng.random() < chance


SPEAKERS = (Owner(0, "my"), Owner(3, "our"), Owner(1, "your"))
PERSON = frozenset({"person"})
BE = next(verb for verb in VERBS if verb.stem == "ole")
HAVE = replace(BE, english="have", english_past="had")
DO = replace(BE, english="do", english_past="did")
ACTIONS = [verb for verb in VERBS if verb.frame != "report"]
REPORTS = [verb for verb in VERBS if verb.frame == "report"]
PLACE_CASES = {
    "s": {"in": Case.INESSIVE, "from": Case.ELATIVE, "to": Case.ILLATIVE},
    "l": {"in": Case.ADESSIVE, "from": Case.ABLATIVE, "to": Case.ALLATIVE},
}
PLACES = frozenset({"building", "outdoors"})
HOLDERS = frozenset({"container", "furniture"})
BEINGS = frozenset({"person", "animal"})
GOODS = frozenset({"thing", "text", "food", "drink", "mass"})


# Noun phrases and subjects


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
    english = english_plural(noun.english) if plural else noun.english
    if rng.random() < adjective_chance and (adjectives := adjectives_for(noun.kind)):
        adjective = zipf_choice(rng, adjectives)
        words.insert(0, adjective.inflect(case, plural=plural))
        english = f"{adjective.english} {english}"
    if owner:
        determiner = owner.english
    elif definite and noun.kind != "person" and rng.random() < 0.08:
        possessor = _possessor(rng)
        words[:0] = possessor.words
        determiner = possessor.english
    elif definite:
        determiner = "the"
    else:
        determiner = "" if plural or noun.is_mass else "an" if english[0] in "aeiou" else "a"
    too = {"": "", "kin": "too", "kaan": "either"}[clitic]
    return Phrase(" ".join(part for part in (determiner, english, too) if part), tuple(words))


def _possessor(rng: random.Random) -> Phrase:
    """A person in the genitive: "the teacher's", "my sister's"."""
    noun = zipf_choice(rng, nouns_of(PERSON))
    owner = rng.choice(SPEAKERS[:2]) if rng.random() < 0.25 else None
    word = noun.inflect(Case.GENITIVE, owner=owner.person if owner else None)
    return Phrase(f"{owner.english if owner else 'the'} {noun.english}'s", (word,))


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


# Phrases of a clause


def _owner(clause: Clause, chance: float) -> Owner | None:
    """Perhaps a possessor, most often the subject itself: a third person can only be that in Finnish."""
    if not clause.happens(chance):
        return None
    if clause.subject.owner and clause.happens(0.6):
        return clause.subject.owner
    # beside "you all", "your" would be read as theirs
    return clause.rng.choice(SPEAKERS[:2] if clause.subject.person == 4 else SPEAKERS)


def _object(clause: Clause, kinds: frozenset[str], *, partitive: bool = False, clitic: str = "") -> Phrase:
    """The object: partitive if negated, indefinite in the plural or as a mass, or asked for by the verb."""
    noun = zipf_choice(clause.rng, nouns_of(kinds))
    owner = _owner(clause, 0.2)
    plural = not noun.is_mass and clause.happens(0.3)
    definite = owner is not None or noun.kind in ("surface", "person") or clause.happens(0.45)
    partitive = partitive or clause.mood == "negative"
    if owner and not partitive:
        plural = False  # "my house" and "my houses" are one word as a total object
    if partitive or (not definite and (plural or noun.is_mass)):
        case = Case.PARTITIVE
    else:
        case = Case.NOMINATIVE if plural else Case.GENITIVE
    return noun_phrase(clause.rng, noun, case, plural=plural, definite=definite, owner=owner, clitic=clitic)


def _place(clause: Clause, kinds: frozenset[str], direction: str, *, clitic: str = "") -> Phrase:
    """Where, from where (`from`) or to where (`to`, or `put`, which English says with in and on)."""
    noun = zipf_choice(clause.rng, nouns_of(kinds, places=True))
    series, preposition = noun.place.split("-")
    case = PLACE_CASES[series]["to" if direction == "put" else direction]
    if direction == "from":
        preposition = "from"
    elif direction == "to":
        preposition = {"furniture": "onto", "container": "into"}.get(noun.kind, "to")
    return _said_of(clause, preposition, noun, case, clitic)


def _about(clause: Clause, kinds: frozenset[str], preposition: str, case: Case, clitic: str) -> Phrase:
    return _said_of(clause, preposition, zipf_choice(clause.rng, nouns_of(kinds)), case, clitic)


def _said_of(clause: Clause, preposition: str, noun: Noun, case: Case, clitic: str) -> Phrase:
    """A noun phrase in a case that English says with a preposition."""
    plural, owner = not noun.is_mass and clause.happens(0.22), _owner(clause, 0.25)
    phrase = noun_phrase(clause.rng, noun, case, plural=plural, owner=owner, clitic=clitic)
    return Phrase(f"{preposition} {phrase.english}".strip(), phrase.words)


# Sentence patterns: which complements a verb takes; the clitic falls on the last

COMPLEMENTS: dict[str, Callable[[Clause, Verb, str], Phrase]] = {
    "object": lambda clause, verb, clitic: _object(clause, verb.objects, clitic=clitic),
    "partitive": lambda clause, verb, clitic: _object(clause, verb.objects, partitive=True, clitic=clitic),
    "there": lambda clause, verb, clitic: _place(clause, verb.objects, "in", clitic=clitic),
    "thither": lambda clause, verb, clitic: _place(clause, verb.objects, "to", clitic=clitic),
    "thence": lambda clause, verb, clitic: _place(clause, verb.objects, "from", clitic=clitic),
    "anywhere": lambda clause, verb, clitic: _place(clause, PLACES, "in", clitic=clitic),
    "into": lambda clause, verb, clitic: _place(
        clause, HOLDERS, "put" if verb.english == "put" else "to", clitic=clitic
    ),
    "about": lambda clause, verb, clitic: _about(clause, verb.objects, "about", Case.ELATIVE, clitic),
    "to whom": lambda clause, verb, clitic: _about(clause, PERSON, "to", Case.ALLATIVE, clitic),
    "from whom": lambda clause, verb, clitic: _about(clause, PERSON, "from", Case.ABLATIVE, clitic),
    "whom": lambda clause, verb, clitic: _about(clause, PERSON, "", Case.ABLATIVE, clitic),
}
PATTERNS: dict[str, tuple[tuple[str, ...], ...]] = {  # one of several is drawn, the first most often
    "motion": (("thither",), ("thence",)),
    "rest": (("there",),),
    "act": (("object",), ("object", "anywhere")),
    "state": (("object",),),
    "feel": (("partitive",),),
    "give": (("object", "to whom"),),
    "obtain": (("object", "from whom"),),
    "put": (("object", "into"),),
    "topic": (("about",),),
    "ask": (("whom", "about"),),
    "report": ((),),  # what is reported is the next clause
}


# Clauses


def _settle(rng: random.Random, subject: Subject, *, asking: bool, past: bool) -> Clause:
    """Mood and clitic; negation is in the present only, and a stressed subject takes the clitic."""
    is_negative = not (asking or past or subject.also) and rng.random() < 0.14
    mood = "question" if asking else "negative" if is_negative else "statement"
    clitic = "" if subject.also or rng.random() > 0.1 else "kaan" if mood == "negative" else "kin"
    return Clause(rng, subject, past, mood, clitic)


def verb_clause(rng: random.Random, verb: Verb, *, asking: bool, past: bool) -> Phrase:
    """A clause around a verb of the lexicon, its complements chosen by the verb's pattern."""
    clause = _settle(rng, draw_subject(rng, verb.subjects), asking=asking, past=past)
    names = zipf_choice(rng, PATTERNS[verb.frame])
    clitics = [""] * (len(names) - 1) + [clause.clitic]
    found = [COMPLEMENTS[name](clause, verb, clitic) for name, clitic in zip(names, clitics, strict=False)]
    return _render(clause, verb, found, adverbs=verb.frame != "report")


def _having(rng: random.Random, *, asking: bool, past: bool) -> Phrase:
    """ "the teacher has a car": at the teacher is a car."""
    clause = _settle(rng, draw_subject(rng, PERSON, having=True), asking=asking, past=past)
    thing = _thing_that_is(clause, GOODS | {"vehicle", "animal"}, clitic=clause.clitic)[0]
    return _render(clause, HAVE, [thing], adverbs=False)


def _existence(rng: random.Random, *, asking: bool, past: bool) -> Phrase:
    """ "there is a dog in the yard": in the yard is a dog. English agrees with the dogs, Finnish does not."""
    nowhere = Subject(Phrase("there", ()), THIRD_SINGULAR, THIRD_SINGULAR, None)
    clause = _settle(rng, nowhere, asking=asking, past=past)
    places, things = (PLACES, BEINGS) if clause.happens(0.5) else (HOLDERS, GOODS)
    place = _place(clause, places, "in", clitic=clause.clitic)
    thing, plural = _thing_that_is(clause, things)
    english_person = THIRD_PLURAL if plural else THIRD_SINGULAR
    subject = Subject(Phrase("there", place.words), THIRD_SINGULAR, english_person, None)
    there_is = Phrase(f"{thing.english} {place.english}", thing.words)
    return _render(replace(clause, subject=subject), BE, [there_is], adverbs=True)


def _thing_that_is(clause: Clause, kinds: frozenset[str], *, clitic: str = "") -> tuple[Phrase, bool]:
    """What there is or what one has, and whether it is plural: nominative if one, partitive otherwise."""
    noun = zipf_choice(clause.rng, nouns_of(kinds))
    plural = not noun.is_mass and clause.happens(0.3)
    is_partitive = plural or noun.is_mass or clause.mood == "negative"
    case = Case.PARTITIVE if is_partitive else Case.NOMINATIVE
    phrase = noun_phrase(clause.rng, noun, case, plural=plural, definite=False, clitic=clitic)
    if clause.mood == "negative" and (plural or noun.is_mass):
        phrase = replace(phrase, english=f"any {phrase.english}")
    return phrase, plural


def _description(rng: random.Random, *, asking: bool, past: bool) -> Phrase:
    """ "the house is big"; a plural or a mass is big in the partitive (talot ovat isoja)."""
    noun = zipf_choice(rng, nouns_of(PLACES | BEINGS | GOODS | {"vehicle"}))
    plural = not noun.is_mass and rng.random() < 0.35
    owner = rng.choice(SPEAKERS) if rng.random() < 0.3 else None
    phrase = noun_phrase(rng, noun, Case.NOMINATIVE, plural=plural, owner=owner, adjective_chance=0.0)
    person = THIRD_PLURAL if plural else THIRD_SINGULAR
    clause = _settle(rng, Subject(phrase, person, person, None), asking=asking, past=past)
    adjective = zipf_choice(rng, adjectives_for(noun.kind))
    word = adjective.inflect(Case.PARTITIVE if plural or noun.is_mass else Case.NOMINATIVE, plural=plural)
    is_very = clause.happens(0.2)
    english = f"very {adjective.english}" if is_very else adjective.english
    return _render(clause, BE, [Phrase(english, (("hyvin",), word) if is_very else (word,))], adverbs=False)


def _render(clause: Clause, verb: Verb, complements: list[Phrase], *, adverbs: bool) -> Phrase:
    """Both sides of a clause in their own word order, perhaps with an adverb of frequency and one of time."""
    frequency = None
    if adverbs and not clause.subject.also and clause.happens(0.1):
        frequency = zipf_choice(clause.rng, FREQUENCIES[:2] if clause.mood == "negative" else FREQUENCIES)
    english = _english(clause, verb, frequency, complements)
    words = _finnish(clause, verb, frequency, complements)
    if not adverbs or clause.happens(0.75):
        return Phrase(english, words)
    time = zipf_choice(clause.rng, PAST_TIMES if clause.past else PRESENT_TIMES)
    if clause.mood == "question" or clause.happens(0.5):
        return Phrase(f"{english} {time.english}", words + time.words)
    return Phrase(f"{time.english} {english}", time.words + words)


def _finnish(
    clause: Clause, verb: Verb, frequency: Phrase | None, complements: list[Phrase]
) -> tuple[Morphs, ...]:
    person, subject = clause.subject.person, clause.subject.phrase.words
    rest = (*(frequency.words if frequency else ()), *(word for part in complements for word in part.words))
    if clause.mood == "negative":
        return (*subject, NEGATIONS[person], (verb.stem,), *rest)
    finite = verb.conjugate(person, past=clause.past)
    if clause.mood == "question":
        return ((*finite, harmonise("ko", verb.stem)), *subject, *rest)
    return (*subject, finite, *rest)


def _english(clause: Clause, verb: Verb, frequency: Phrase | None, complements: list[Phrase]) -> str:
    """English word order: do-support for negations and questions, but not with "be"."""
    person, subject = clause.subject.english_person, clause.subject.phrase.english
    middle = "also" if clause.subject.also else frequency.english if frequency else ""
    finite = _english_finite(verb, person, past=clause.past)
    helper = _english_finite(DO, person, past=clause.past)
    is_be = verb.english == "be"
    if clause.mood == "negative":
        order = [subject, finite, "not", middle] if is_be else [subject, helper, "not", middle, verb.english]
    elif clause.mood == "question":
        order = [finite, subject, middle] if is_be else [helper, subject, middle, verb.english]
    else:
        order = [subject, finite, middle] if is_be else [subject, middle, finite]
    return " ".join(part for part in (*order, *(part.english for part in complements)) if part)


def _english_finite(verb: Verb, person: int, *, past: bool) -> str:
    if verb.english == "be":
        present = ("am", "are", "is", "are", "are", "are")[person]
        return {"am": "was", "is": "was", "are": "were"}[present] if past else present
    if past:
        return verb.english_past
    first, *rest = verb.english.split()
    if person == THIRD_SINGULAR:
        first = {"have": "has", "do": "does"}.get(first) or english_s(first)
    return " ".join([first, *rest])


def any_clause(rng: random.Random, *, past: bool, asking: bool = False) -> Phrase:
    kind = rng.random()
    if kind < 0.08:
        return _having(rng, asking=asking, past=past)
    if kind < 0.15:
        return _existence(rng, asking=asking, past=past)
    if kind < 0.23:
        return _description(rng, asking=asking, past=past)
    return verb_clause(rng, zipf_choice(rng, ACTIONS), asking=asking, past=past)
