"""Moses' tokenisation, in which the paper's text is, and its inverse."""

from __future__ import annotations

import re
import unicodedata

from dpe.errors import UserError


class Moses:
    """Moses' tokenisation of one language, and its inverse, through sacremoses.

    Punctuation is not turned into XML entities. Text is composed first (NFC), because Moses would cut
    a separate accent off its letter; runs of whitespace become one blank and ASCII control characters
    go, so the inverse restores the usual spacing of the language, not always the original one. Of a
    language that Moses has no abbreviations for, it uses the English ones.
    """

    def __init__(self, language: str) -> None:
        if not re.fullmatch("[a-z]{2,3}", language):
            raise UserError(f"{language!r} is not a language code of two or three letters, such as 'de'.")
        from sacremoses import MosesDetokenizer, MosesTokenizer  # noqa: PLC0415  # half a second

        self.language = language
        self._tokenizer = MosesTokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)

    def tokenize(self, line: str) -> str:
        """The tokens of a line, separated by single blanks."""
        composed = unicodedata.normalize("NFC", line)
        return str(self._tokenizer.tokenize(composed, escape=False, return_str=True))

    def detokenize(self, line: str) -> str:
        """A line of tokens as ordinary text."""
        return str(self._detokenizer.detokenize(line.split(), unescape=False))
