"""Moses' tokens and back: what the rules give, and that no letter is lost."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpe.errors import UserError
from dpe.text.preparation import Moses


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("en", "He said: \"It's 5,300 km, isn't it?\"", "He said : \" It 's 5,300 km , isn 't it ? \""),
        ("en", "Mr. Smith (my uncle) left...", "Mr. Smith ( my uncle ) left ..."),
        ("en", "[Black & white] | it's", "[ Black & white ] | it 's"),
        ("de", "Z.B. am 3. Mai: Größe, Öl und ÄRGER!", "Z.B. am 3. Mai : Größe , Öl und ÄRGER !"),
        ("fr", "L'été, c'est l'hiver.", "L' été , c' est l' hiver ."),
        ("ro", "Și ce dacă, prietene?", "Și ce dacă , prietene ?"),
    ],
)
def test_moses_tokens_and_back(language: str, text: str, tokens: str) -> None:
    moses = Moses(language)
    assert moses.tokenize(text) == tokens
    assert moses.detokenize(tokens) == text


def test_moses_keeps_a_separate_accent_with_its_letter() -> None:
    assert Moses("fr").tokenize("cafe\u0301 E\u0301TE\u0301") == "café ÉTÉ"


def test_moses_writes_no_entities_and_resolves_none() -> None:
    moses = Moses("en")
    assert moses.tokenize("a < b & c > d") == "a < b & c > d"
    assert moses.detokenize("&lt;") == "&lt;"


@settings(max_examples=50)
@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n")))
def test_moses_line_stays_one_line_and_keeps_its_letters(text: str) -> None:
    moses = Moses("en")
    tokens = moses.tokenize(text)
    assert "\n" not in tokens
    assert "\n" not in moses.detokenize(tokens)
    assert tokens == " ".join(tokens.split())
    composed = unicodedata.normalize("NFC", text)
    assert list(filter(str.isalnum, tokens)) == list(filter(str.isalnum, composed))


@pytest.mark.parametrize("code", ["german", "DE", "", "de-AT"])
def test_what_is_no_language_code_is_refused(code: str) -> None:
    with pytest.raises(UserError, match="language code"):
        Moses(code)
