"""How pieces are written on a line, and read back.

pieces        ▁two ▁word s      as they are, between blanks (U+0020; no piece has one)
subword-nmt   two word@@ s      `sed 's/@@ //g'` gives the plain line
ids           17 805 9          numbers; unknown text is lost, its id says only that it was there
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from dpe.choices import PieceFormat
from dpe.errors import UserError
from dpe.text.sentencepiece_model import MARKER
from dpe.text.vocabulary import Vocabulary

FORMATS = get_args(PieceFormat)
_JOINT = "@@"


def format_pieces(pieces: Iterable[str], format: str, vocabulary: Vocabulary) -> str:
    """One line of text, without its end."""
    match format:
        case "pieces":
            return " ".join(pieces)
        case "subword-nmt":
            return _with_joints(pieces, vocabulary)
        case "ids":
            return " ".join(map(str, vocabulary.piece_ids(pieces)))
    raise _unknown_format(format)


def parse_line(text: str, format: str, vocabulary: Vocabulary) -> list[str]:
    """The pieces of a line; `vocabulary.decode` makes plain text of them."""
    match format:
        case "pieces":
            if text and vocabulary.marks_first_word and not text.startswith(MARKER):
                raise UserError(
                    f"{text[:20]!r} does not begin with U+2581, as pieces do; is it another format?"
                )
            return [piece for piece in text.split(" ") if piece]
        case "subword-nmt":
            return _from_joints(text, vocabulary)
        case "ids":
            return vocabulary.pieces_of_ids(_id(token, vocabulary) for token in text.split(" ") if token)
    raise _unknown_format(format)


def _with_joints(pieces: Iterable[str], vocabulary: Vocabulary) -> str:
    """subword-nmt's text: a piece that its word continues ends with `@@`.

    A piece that is the word marker alone goes into the piece behind it. An empty word (two markers in a
    row) is an empty token, so two blanks. Text that itself has `@@` at the end of a word is not told from a
    joint: whoever undoes the joints, `sed` or `parse_line`, joins that word to the next one.
    """
    written: list[str] = []
    word_has_text = False
    for piece in pieces:
        if piece.startswith(MARKER):
            written += " ", piece[1:]
            word_has_text = len(piece) > 1
        else:
            written += [_JOINT + " ", piece] if word_has_text else [piece]
            word_has_text = True
    # Blanks are markers, a few of which may stand inside a run of unknown characters.
    line = "".join(written).replace(MARKER, " ")
    return line.removeprefix(" ") if vocabulary.marks_first_word else line


def _from_joints(text: str, vocabulary: Vocabulary) -> list[str]:
    """Pieces of subword-nmt's text; a marker alone comes back as part of the piece behind it."""
    if not text:
        return []
    *tokens, last = text.split(" ")
    pieces: list[str] = []
    marker = MARKER if vocabulary.marks_first_word else ""
    for token in tokens:
        pieces.append(marker + token.removesuffix(_JOINT))
        marker = "" if token.endswith(_JOINT) else MARKER
    return [piece for piece in [*pieces, marker + last] if piece]


def _id(token: str, vocabulary: Vocabulary) -> int:
    if token.isascii() and token.isdigit() and len(token) < 10 and int(token) < len(vocabulary):
        return int(token)
    raise UserError(f"{token[:20]!r} is no piece id; ids are whole numbers from 0 to {len(vocabulary) - 1}.")


def _unknown_format(format: str) -> UserError:
    return UserError(f"There is no format {format!r}; choose one of {', '.join(FORMATS)}.")
