"""The built-in corpus: forms checked by hand, and what must hold of every generated pair."""

from __future__ import annotations

import re
from collections import Counter
from itertools import repeat
from pathlib import Path

import pytest

from dpe.demo.grammar import GoldPair, _distinct, generate, write_corpus
from dpe.demo.inflection import Case, english_plural, english_s
from dpe.demo.lexicon import ADJECTIVES, NOUNS, VERBS, nouns_of
from dpe.errors import UserError

ME, YOU, SHE, WE, YOU_ALL, THEY = range(6)
C = Case

# compound parts joined by +, case, plural?, owner, morphs
NOUN_FORMS = [
    ("talo", C.INESSIVE, True, ME, "talo i ssa ni"),
    ("talo", C.ILLATIVE, False, None, "talo on"),
    ("talo", C.ILLATIVE, False, ME, "talo o ni"),
    ("talo", C.ILLATIVE, True, ME, "talo i hi ni"),
    ("talo", C.ILLATIVE, False, SHE, "talo o nsa"),
    ("talo", C.INESSIVE, False, SHE, "talo ssa an"),
    ("talo", C.ALLATIVE, False, THEY, "talo lle en"),
    ("talo", C.GENITIVE, False, WE, "talo mme"),
    ("talo", C.PARTITIVE, True, None, "talo j a"),
    ("kala", C.INESSIVE, True, None, "kalo i ssa"),
    ("kala", C.ILLATIVE, True, None, "kalo i hin"),
    ("kala", C.PARTITIVE, False, SHE, "kala a nsa"),
    ("kala", C.PARTITIVE, True, SHE, "kalo j a an"),
    ("koira", C.INESSIVE, True, None, "koir i ssa"),
    ("koira", C.ILLATIVE, True, None, "koir i in"),
    ("koira", C.ILLATIVE, True, YOU, "koir i i si"),
    ("koira", C.PARTITIVE, True, None, "koir i a"),
    ("kylä", C.ELATIVE, True, None, "kyl i stä"),
    ("kylä", C.ILLATIVE, False, YOU_ALL, "kylä ä nne"),
    ("kylä", C.INESSIVE, False, SHE, "kylä ssä än"),
    ("metsä", C.ILLATIVE, True, None, "mets i in"),
    ("hotelli", C.INESSIVE, True, None, "hotelle i ssa"),
    ("tuoli", C.ABLATIVE, True, None, "tuole i lta"),
    ("peili", C.PARTITIVE, True, None, "peile j ä"),
    ("lääkäri", C.PARTITIVE, True, None, "lääkäre i tä"),
    ("museo", C.PARTITIVE, False, None, "museo ta"),
    ("keittiö", C.ILLATIVE, False, None, "keittiö ön"),
    ("keittiö", C.PARTITIVE, True, None, "keittiö i tä"),
    ("päärynä", C.PARTITIVE, True, None, "päärynö i tä"),
    ("omena", C.INESSIVE, True, None, "omeno i ssa"),
    ("puu", C.ILLATIVE, False, None, "puu hun"),
    ("puu", C.ILLATIVE, False, ME, "puu hu ni"),
    ("puu", C.INESSIVE, True, None, "pu i ssa"),
    ("tie", C.ADESSIVE, True, None, "te i llä"),
    ("suo", C.ALLATIVE, True, None, "so i lle"),
    ("opettaja", C.ALLATIVE, True, None, "opettaj i lle"),
    ("koulu+kirja", C.INESSIVE, True, WE, "koulu kirjo i ssa mme"),
    ("kylä+koulu", C.ELATIVE, False, None, "kylä koulu sta"),
    ("kalastaja+kylä", C.INESSIVE, False, None, "kalastaja kylä ssä"),
]

VERB_FORMS = [
    ("sano", SHE, False, "sano o"),
    ("sano", ME, True, "sano i n"),
    ("kysy", THEY, False, "kysy vät"),
    ("osta", SHE, False, "osta a"),
    ("osta", WE, True, "ost i mme"),
    ("laula", YOU, True, "laulo i t"),
    ("avaa", SHE, False, "avaa"),
    ("avaa", THEY, True, "ava si vat"),
    ("siivoa", SHE, False, "siivoa a"),
    ("halua", SHE, True, "halu si"),
    ("mene", SHE, False, "mene e"),
    ("mene", ME, True, "men i n"),
    ("juokse", THEY, True, "juoks i vat"),
    ("syö", SHE, False, "syö"),
    ("syö", ME, True, "sö i n"),
    ("vie", YOU_ALL, True, "ve i tte"),
    ("myy", THEY, False, "myy vät"),
    ("ole", SHE, False, "on"),
    ("ole", THEY, False, "o vat"),
    ("ole", THEY, True, "ol i vat"),
]

ADJECTIVE_FORMS = [
    ("iso", C.INESSIVE, True, "iso i ssa"),
    ("vanha", C.INESSIVE, True, "vanho i ssa"),
    ("musta", C.PARTITIVE, True, "must i a"),
    ("hyvä", C.ILLATIVE, True, "hyv i in"),
    ("vihreä", C.PARTITIVE, True, "vihre i tä"),
    ("nopea", C.ILLATIVE, True, "nope i hin"),
]


@pytest.fixture(scope="module")
def pairs() -> list[GoldPair]:
    return list(generate(30_000, seed=3))


@pytest.mark.parametrize(("word", "case", "plural", "owner", "morphs"), NOUN_FORMS)
def test_noun_forms(word: str, case: Case, plural: bool, owner: int | None, morphs: str) -> None:
    (noun,) = [noun for noun in NOUNS if "+".join([*noun.parts, noun.stem]) == word]
    assert " ".join(noun.inflect(case, plural=plural, owner=owner)) == morphs


@pytest.mark.parametrize(("stem", "person", "past", "morphs"), VERB_FORMS)
def test_verb_forms(stem: str, person: int, past: bool, morphs: str) -> None:
    forms = {verb.conjugate(person, past=past) for verb in VERBS if verb.stem == stem}
    assert {" ".join(form) for form in forms} == {morphs}


@pytest.mark.parametrize(("stem", "case", "plural", "morphs"), ADJECTIVE_FORMS)
def test_adjective_forms(stem: str, case: Case, plural: bool, morphs: str) -> None:
    (adjective,) = [adjective for adjective in ADJECTIVES if adjective.stem == stem]
    assert " ".join(adjective.inflect(case, plural=plural)) == morphs


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("story", "stories"),
        ("toy", "toys"),
        ("bus", "buses"),
        ("fisherman", "fishermen"),
        ("scarf", "scarves"),
    ],
)
def test_english_plural(singular: str, plural: str) -> None:
    assert english_plural(singular) == plural


def test_english_third_person() -> None:
    assert [english_s(verb) for verb in ("go", "study", "buy", "wash")] == [
        "goes",
        "studies",
        "buys",
        "washes",
    ]


# Clauses translated by hand, {} being one of the words; a pronoun in brackets may be left out.
CLAUSES = [
    (
        "I was in {}.",
        "(minä )?olin {}.",
        {"my house": "talossani", "the house": "talossa", "the car": "autossa"},
    ),
    ("the dog is {}.", "koira on {}.", {"big": "iso", "black": "musta", "brave": "rohkea", "proud": "ylpeä"}),
    ("the dogs are {}.", "koirat ovat {}.", {"big": "isoja", "brown": "ruskeita", "funny": "hauskoja"}),
    ("she has a {}.", "hänellä on {}.", {"car": "auto", "dog": "koira", "book": "kirja"}),
    (
        "I do not have {}.",
        "minulla ei ole {}.",
        {"a book": "kirjaa", "any books": "kirjoja", "a car": "autoa"},
    ),
    ("{} coffee.", "{} kahvia.", {"I drink": "juon", "you drink": "juot", "she drinks": "hän juo"}),
    ("{} a book.", "{} kirjan.", {"we bought": "ostimme", "I bought": "ostin", "she buys": "hän ostaa"}),
    ("do you want the {}?", "haluatko (sinä )?{}?", {"books": "kirjat", "coffee": "kahvin", "car": "auton"}),
    ("he does not want the {}.", "hän ei halua {}.", {"car": "autoa", "apple": "omenaa", "dogs": "koiria"}),
    ("there are {} in the yard.", "pihalla on {}.", {"fathers": "isiä", "teachers": "opettajia"}),
    ("the teacher is also in the {}.", "opettajakin on {}.", {"car": "autossa", "house": "talossa"}),
    ("we do not want a {} either.", "(me )?emme halua {}.", {"cat": "kissaakaan", "dog": "koiraakaan"}),
    ("they go to {}.", "he menevät {}.", {"their house": "taloonsa", "their houses": "taloihinsa"}),
]


@pytest.mark.parametrize(("english", "finnish", "words"), CLAUSES)
def test_clauses_say_the_same(
    english: str, finnish: str, words: dict[str, str], pairs: list[GoldPair]
) -> None:
    translations = {pair.source: pair.target for pair in pairs}
    said = [word for word in words if english.format(word) in translations]
    assert said
    for word in said:
        pattern = finnish.replace(".", r"\.").removesuffix("?").format(words[word]) + r"\??"
        assert re.fullmatch(pattern, translations[english.format(word)])


def test_morphs_join_to_the_words_in_order(pairs: list[GoldPair]) -> None:
    for pair in pairs[:5_000]:
        assert re.findall(r"\w+", pair.target) == ["".join(morphs) for morphs in pair.morphs]
        assert all(all(morphs) for morphs in pair.morphs)


def test_clauses_are_punctuated(pairs: list[GoldPair]) -> None:
    for pair in pairs:
        assert re.fullmatch(r"[\w' ]+(, (and|but|so)[\w' ]+)?[.?]", pair.source), pair.source
        assert re.fullmatch(r"[\wäö]+( [\wäö]+)*(, [\wäö]+( [\wäö]+)+)?[.?]", pair.target), pair.target
        assert pair.source[-1] == pair.target[-1]
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", pair.source), pair.source


def test_suffixes_obey_vowel_harmony(pairs: list[GoldPair]) -> None:
    """Within a word, from its last stem on, back and front vowels do not meet (i and e go with either)."""
    firsts = {part for noun in NOUNS for part in noun.parts}
    suffixed = 0
    for morphs in {morphs for pair in pairs for morphs in pair.morphs}:
        is_compound = morphs[0] in firsts and len(morphs) > 1 and len(morphs[1]) > 2 and _is_stem(morphs[1])
        native = "".join(morphs[1:] if is_compound else morphs)
        assert not (set(native) & set("aou") and set(native) & set("äöy")), morphs
        suffixed += set(native) & set("aouäöy") != set()
    assert suffixed > 1_000


def _is_stem(morph: str) -> bool:
    return any(morph[:-1] == noun.stem[:-1] or morph == noun.stem[:-1] for noun in NOUNS)


def test_adjectives_agree_with_their_nouns(pairs: list[GoldPair]) -> None:
    """An adjective's suffixes start the noun's, harmony and what only nouns carry aside."""
    seen = 0
    for pair in pairs[:5_000]:
        for first, second in zip(pair.morphs, pair.morphs[1:], strict=False):
            if first[0] == "iso" and first[1:] and first[-1] in ("ssa", "sta", "lla", "lta", "lle"):
                seen += 1
                assert first[-1].replace("a", "ä") in [morph.replace("a", "ä") for morph in second]
                assert ("i" in first[1:]) == ("i" in second[1:])
    assert seen > 20


def test_same_seed_same_pairs() -> None:
    assert list(generate(300, seed=5)) == list(generate(300, seed=5))
    assert list(generate(300, seed=5)) != list(generate(300, seed=6))


def test_pairs_are_distinct_in_both_languages(pairs: list[GoldPair]) -> None:
    assert (
        len({pair.source for pair in pairs}) == len({pair.target for pair in pairs}) == len(pairs) == 30_000
    )


def test_more_than_100_000_pairs_are_possible() -> None:
    """Of "she bought the book in the village" person, tense, verb, object and place vary freely."""
    acts = [verb for verb in VERBS if verb.frame == "act"]
    places = nouns_of(frozenset({"building", "outdoors"}), places=True)
    assert 6 * 2 * len(places) * sum(len(nouns_of(verb.objects)) for verb in acts) > 100_000
    assert (
        len({noun.english for noun in NOUNS})
        == len({noun.inflect(C.GENITIVE) for noun in NOUNS})
        == len(NOUNS)
    )
    finite = [
        verb.conjugate(person, past=past) for verb in acts for person in range(6) for past in (True, False)
    ]
    assert len(set(finite)) == len(finite)


def test_word_frequencies_are_zipfian(pairs: list[GoldPair]) -> None:
    counts = Counter("".join(morphs) for pair in pairs[:20_000] for morphs in pair.morphs)
    assert sum(count <= 2 for count in counts.values()) / len(counts) > 0.3
    assert sum(count for _, count in counts.most_common(10)) / counts.total() > 0.1
    assert len(counts) > 4_000


def test_too_few_distinct_sentences_is_a_sentence() -> None:
    pair = GoldPair("he is.", "hän on.", (("hän",), ("on",)))
    with pytest.raises(UserError, match="only 1 distinct pairs of the 2"):
        list(_distinct(repeat(pair), 2))


def test_a_line_of_either_language_is_given_once() -> None:
    lines = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    draws = [GoldPair(source, target, ((target,),)) for source, target in lines]
    assert [pair.target for pair in _distinct(iter(draws), 2)] == ["x", "y"]


@pytest.mark.parametrize("size", [0, -3])
def test_a_corpus_of_nothing_is_refused(size: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 1"):
        generate(size, seed=1)
    with pytest.raises(UserError, match="at least 1"):
        write_corpus(tmp_path, pairs=size, seed=1)


def _lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


def test_written_corpus(tmp_path: Path) -> None:
    report = write_corpus(tmp_path, pairs=2_000, seed=1)
    files = {name: _lines(tmp_path / name) for name in sorted(path.name for path in tmp_path.iterdir())}
    assert list(files) == ["dev.en", "dev.fi", "gold.tsv", "test.en", "test.fi", "train.en", "train.fi"]
    assert (report.train, report.dev, report.test, report.words) == (2_000, 100, 100, len(files["gold.tsv"]))
    for language in ("en", "fi"):
        splits = [files[f"{split}.{language}"] for split in ("train", "dev", "test")]
        assert [len(split) for split in splits] == [2_000, 100, 100]
        assert len({line for split in splits for line in split}) == 2_200
    gold = dict(line.split("\t") for line in files["gold.tsv"])
    assert list(gold) == sorted(gold)
    assert all(morphs.replace(" ", "") == word for word, morphs in gold.items())
    words = {
        word
        for name in files
        if name.endswith(".fi")
        for line in files[name]
        for word in re.findall(r"\w+", line)
    }
    assert words == set(gold)
    sources = {pair.source: pair.target for pair in generate(2_200, seed=1)}
    assert all(sources[en] == fi for en, fi in zip(files["dev.en"], files["dev.fi"], strict=True))


@pytest.mark.parametrize(("size", "held_out"), [(1, 1), (60, 3), (10_000, 500), (12_000, 500)])
def test_held_out_sizes(size: int, held_out: int, tmp_path: Path) -> None:
    report = write_corpus(tmp_path, pairs=size, seed=2)
    assert (report.train, report.dev, report.test) == (size, held_out, held_out)
    assert len(_lines(tmp_path / "dev.fi")) == len(_lines(tmp_path / "test.en")) == held_out


def test_corpus_bytes_depend_on_the_seed_alone(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_corpus(tmp_path / name, pairs=50, seed=seed)
    files = [path.name for path in (tmp_path / "a").iterdir()]
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)
    assert (tmp_path / "a" / "train.fi").read_bytes() != (tmp_path / "c" / "train.fi").read_bytes()


@pytest.mark.parametrize("name", ["dev.fi", "gold.tsv"])
def test_somebody_elses_text_is_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("my own\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"{name} already exists with other text"):
        write_corpus(tmp_path, pairs=3, seed=1)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == "my own\n"


def test_the_same_corpus_may_be_written_again(tmp_path: Path) -> None:
    assert write_corpus(tmp_path, pairs=3, seed=1) == write_corpus(tmp_path, pairs=3, seed=1)
