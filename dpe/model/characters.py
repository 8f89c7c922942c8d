"""Characters as the mixed model's decoder reads them: as numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpe.text.vocabulary import Vocabulary

# The characters of the vocabulary follow from FIRST_CHARACTER on, in its order.
PAD_CHARACTER = 0
BEGIN_CHARACTER = 1
UNKNOWN_CHARACTER = 2
FIRST_CHARACTER = 3


class CharacterIds:
    """What the mixed model reads, as numbers: padding, begin, unknown, then the vocabulary's characters."""

    pad, begin, unknown = PAD_CHARACTER, BEGIN_CHARACTER, UNKNOWN_CHARACTER

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._codes = _code_points("".join(vocabulary.characters))  # sorted, as the characters are

    def __len__(self) -> int:
        return len(self._codes) + FIRST_CHARACTER

    def encode(self, text: str) -> NDArray[np.int64]:
        """One id per code point of the text."""
        codes = _code_points(text)
        found = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        return np.where(self._codes[found] == codes, found + FIRST_CHARACTER, self.unknown)


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
