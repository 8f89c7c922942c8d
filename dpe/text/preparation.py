"""The paper's preparation of a parallel text: tokenised by Moses, without empty and long pairs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dpe.errors import UserError
from dpe.files import whole_compressed_files
from dpe.text.corpus import Pair, line_bytes


@dataclass(frozen=True)
class CleaningRules:
    """Which pairs are kept, and whether their text is tokenised; case and diacritics always stay."""

    max_tokens: int = 80  # a side with this many tokens, or more, drops the pair
    max_ratio: float | None = None  # the longer side may have this many times the tokens of the shorter
    source_language: str | None = None  # tokenise the side by Moses' rules for this language
    target_language: str | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 2:
            raise UserError(f"max-tokens must be at least 2, got {self.max_tokens}.")
        if self.max_ratio is not None and not self.max_ratio >= 1:
            raise UserError(f"max-ratio must be at least 1, got {self.max_ratio}.")

    def reason_to_drop(self, source: str, target: str) -> str | None:
        """The field of `CleaningReport` that counts this pair, or None to keep it.

        Tokens are separated by whitespace, so a side with nothing but spaces is empty.
        """
        shorter, longer = sorted((len(source.split()), len(target.split())))
        if shorter == 0:
            return "empty"
        if longer >= self.max_tokens:
            return "too_long"
        if self.max_ratio is not None and longer > self.max_ratio * shorter:
            return "unequal"
        return None


@dataclass(frozen=True)
class CleaningReport:
    """How many pairs were kept, and how many dropped for the first reason that applied."""

    kept: int = 0
    empty: int = 0
    too_long: int = 0
    unequal: int = 0  # above max_ratio

    @property
    def dropped(self) -> int:
        return self.empty + self.too_long + self.unequal

    def __str__(self) -> str:
        return (
            f"{self.kept:,} pairs kept, {self.dropped:,} dropped: {self.empty:,} with an empty side, "
            f"{self.too_long:,} too long, {self.unequal:,} of unequal length"
        )


def clean(
    pairs: Iterable[Pair], *, out_source: Path, out_target: Path, rules: CleaningRules = CleaningRules()
) -> CleaningReport:
    """Write the pairs that `rules` keep, tokenised where a language is given, and count the others.

    The pairs are streamed; both files appear at the end, or neither. Tokens are counted after tokenisation.
    """
    counts = dict.fromkeys(("kept", "empty", "too_long", "unequal"), 0)
    tokenize_source, tokenize_target = (
        Moses(language).tokenize if language else str
        for language in (rules.source_language, rules.target_language)
    )
    with whole_compressed_files(out_source, out_target) as (source_file, target_file):
        for pair in pairs:
            if pair.source is None:
                raise ValueError("there is no source side to clean")
            source, target = tokenize_source(pair.source), tokenize_target(pair.target)
            reason = rules.reason_to_drop(source, target)
            counts[reason or "kept"] += 1
            if reason is None:
                source_file.write(line_bytes(source))
                target_file.write(line_bytes(target))
    return CleaningReport(**counts)


class Moses:
    """Moses' tokenisation of one language, and its inverse, through sacremoses.

    Punctuation is not turned into XML entities. Text is composed first (NFC), because Moses would separate
    a combining accent from its letter. Runs of whitespace become one space and ASCII control characters are
    removed, so the inverse restores the usual spacing of the language, not always the original one. For
    a language without abbreviations of its own Moses uses the English ones.
    """

    def __init__(self, language: str) -> None:
        if not re.fullmatch("[a-z]{2,3}", language):
            raise UserError(f"{language!r} is not a language code; give two or three letters, such as 'de'.")
        from sacremoses import MosesDetokenizer, MosesTokenizer  # noqa: PLC0415  # half a second

        self.language = language
        self._tokenizer = MosesTokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)

    def tokenize(self, line: str) -> str:
        """The tokens of a line, separated by single spaces."""
        composed = unicodedata.normalize("NFC", line)
        return str(self._tokenizer.tokenize(composed, escape=False, return_str=True))

    def detokenize(self, line: str) -> str:
        """A line of tokens as ordinary text."""
        return str(self._detokenizer.detokenize(line.split(), unescape=False))
