"""How pieces are written on a line, and read back.

pieces        ▁two ▁word s      as they are, separated by spaces (U+0020, which no piece contains)
subword-nmt   two word@@ s      `sed -r 's/(@@ )|(@@ ?$)//g'` gives the plain line
ids           17 805 9          numbers; unknown text is lost, because all of it has the same id
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

from dpe.choices import PieceFormat
from dpe.errors import UserError
from dpe.text.words import MARKER

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary

FORMATS = get_args(PieceFormat)
_JOINT = "@@"
JSON_LINES = ('{"pieces"', '{"cuts"')  # how lines of `dpe segment --format jsonl` begin


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
            return _from_pieces(text, vocabulary)
        case "subword-nmt":
            return _from_joints(text, vocabulary)
        case "ids":
            return _from_ids(text, vocabulary)
    raise _unknown_format(format)


def _from_pieces(text: str, vocabulary: Vocabulary) -> list[str]:
    """The pieces between spaces, without control pieces, and U+2047 for the unknown piece, as in ids.

    A translator may start a line inside a word (`( ▁talo )`) or never start one (`) )`), so a marker is not
    required. What is refused, because joining it would lose its spaces, is text that no translator with this
    vocabulary writes: several tokens without any marker, one of which cannot be a piece.
    """
    if text.startswith(JSON_LINES):
        raise UserError(f"{text[:20]!r} is a line of --format jsonl; segment with --format pieces instead.")
    ids = vocabulary.ids

    def may_be_piece(token: str) -> bool:  # of the vocabulary, or a run of unknown characters
        return (
            token in ids or token in vocabulary.byte_ids or not any(character in ids for character in token)
        )

    tokens = [token for token in text.split(" ") if token]
    # Special pieces are read as nothing or as U+2047. But one that can be a piece of text is text: a
    # vocabulary without the characters of `</s>` writes them so.
    special_ids = (vocabulary.pad_id, vocabulary.unk_id, vocabulary.bos_id, vocabulary.eos_id)
    special = {vocabulary.pieces[i]: vocabulary.pieces_of_ids([i]) for i in special_ids}
    special = {piece: read for piece, read in special.items() if not may_be_piece(piece)}
    if vocabulary.marks_every_word and MARKER not in text and len(tokens) > 1:
        for token in tokens:
            if token not in special and not may_be_piece(token):
                raise UserError(
                    f"{text[:20]!r} contains no U+2581, and {token[:20]!r} is not a piece; "
                    "is it another format?"
                )
    return [piece for token in tokens for piece in special.get(token, [token])]


def _with_joints(pieces: Iterable[str], vocabulary: Vocabulary) -> str:
    """subword-nmt's text: a piece that its word continues ends with `@@`.

    A piece that is the word marker alone is written as part of the next piece. An empty word (two markers in
    a row) is an empty token, so two spaces. Bytes are written as their character.
    Text that itself has `@@` at the end of a word cannot be told
    from a joint: `sed` and `parse_line` both remove it and join that word to the next one.
    """
    written: list[str] = []
    word_has_text = False
    for piece in filter(None, vocabulary.surfaces(pieces)):
        if not vocabulary.marks_ends and piece.startswith(MARKER):
            written += " ", piece[1:]
            word_has_text = len(piece) > 1
        else:
            written += [_JOINT + " ", piece] if word_has_text and piece != MARKER else [piece]
            word_has_text = not piece.endswith(MARKER)
    # Markers at the ends of pieces, and those inside a run of unknown characters, are spaces.
    return vocabulary.without_outer_space("".join(written).replace(MARKER, " "))


def _from_joints(text: str, vocabulary: Vocabulary) -> list[str]:
    """Pieces of subword-nmt's text; a marker alone comes back as part of the next piece.

    A joint at the end of the line joins nothing and is removed, as by subword-nmt's own `sed`.
    """
    if not text:
        return []
    if MARKER in text:
        raise UserError(f"{text[:20]!r} contains a U+2581, as pieces do; is it --format pieces?")
    tokens = text.split(" ")
    is_end = [not token.endswith(_JOINT) for token in tokens[:-1]]  # of a word
    outer = vocabulary.marks_every_word
    marked = [*is_end, outer] if vocabulary.marks_ends else [outer, *is_end]
    pieces = []
    for token, has_marker in zip(tokens, marked, strict=True):
        marker, part = MARKER * has_marker, token.removesuffix(_JOINT)
        pieces.append(part + marker if vocabulary.marks_ends else marker + part)
    return [piece for piece in pieces if piece]


def _from_ids(text: str, vocabulary: Vocabulary) -> list[str]:
    ids: list[int] = []
    for token in filter(None, text.split(" ")):
        is_number = token.isascii() and token.isdigit() and len(token) < 10
        if not is_number or int(token) >= len(vocabulary):
            largest = len(vocabulary) - 1
            raise UserError(f"{token[:20]!r} is not a piece id; ids are whole numbers from 0 to {largest}.")
        ids.append(int(token))
    return vocabulary.pieces_of_ids(ids)


def _unknown_format(format: str) -> UserError:
    return UserError(f"Unknown format {format!r}; choose one of {', '.join(FORMATS)}.")
