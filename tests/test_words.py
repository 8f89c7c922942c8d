"""The words of a marked line, and the pieces of each word."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dpe.text.words import MARKER, pieces_by_word, split_words


@given(line=st.text(alphabet="ab▁"))
def test_words_joined_are_the_line(line: str) -> None:
    words = split_words(line)
    assert "".join(words) == line
    assert all(MARKER not in word[1:] for word in words)
    assert all(word.startswith(MARKER) for word in words[1:])


@given(st.lists(st.text("ab▁", min_size=1), max_size=6), st.data())
def test_by_word_parts_pieces_at_the_words(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    places = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)))))
    ends = [place for place in places if place < len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *ends, len(text)]) if a < b]
    parted = pieces_by_word(words, pieces)
    assert ["".join(parts) for parts in parted] == words
    borders = set(itertools.accumulate(map(len, words))) | set(ends)
    assert list(itertools.accumulate(len(part) for parts in parted for part in parts)) == sorted(borders)
