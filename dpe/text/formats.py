"""How pieces are written on a line, and read back.

pieces        ▁two ▁word s      as they are, between blanks (U+0020; no piece has one)
subword-nmt   two word@@ s      `sed -r 's/(@@ )|(@@ ?$)//g'` gives the plain line
ids           17 805 9          numbers; unknown text is lost, its id says only that it was there
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from dpe.choices import PieceFormat
from dpe.errors import UserError
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER

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
            return vocabulary.pieces_of_ids(_id(token, vocabulary) for token in text.split(" ") if token)
    raise _unknown_format(format)


def _from_pieces(text: str, vocabulary: Vocabulary) -> list[str]:
    """The pieces between blanks, without control pieces, and U+2047 for the unknown piece, as in ids.

    A translator may begin a line inside a word (`( ▁talo )`) or never begin one (`) )`), so a marker is not
    demanded. What is refused, because joining it would lose its blanks, is text that no translator of this
    vocabulary writes: several tokens, none with a marker, and one that no cut could have made.
    """
    if text.startswith(JSON_LINES):
        raise UserError(f"{text[:20]!r} is a line of --format jsonl; segment with --format pieces instead.")
    tokens = [token for token in text.split(" ") if token]
    special = _special_pieces(vocabulary)
    if vocabulary.marks_first_word and MARKER not in text and len(tokens) > 1:
        for token in tokens:
            if token not in special and not _may_be_cut(token, vocabulary):
                raise UserError(
                    f"{text[:20]!r} has no U+2581, and {token[:20]!r} is no piece; is it another format?"
                )
    return [piece for token in tokens for piece in special.get(token, [token])]


def _special_pieces(vocabulary: Vocabulary) -> dict[str, list[str]]:
    """What the special pieces are read as: nothing, or U+2047.

    One that may be cut from text is text: a vocabulary that knows no character of `</s>` writes it so.
    """
    ids = (vocabulary.pad_id, vocabulary.unk_id, vocabulary.bos_id, vocabulary.eos_id)
    named = {vocabulary.pieces[i]: vocabulary.pieces_of_ids([i]) for i in ids}
    return {piece: read for piece, read in named.items() if not _may_be_cut(piece, vocabulary)}


def _may_be_cut(token: str, vocabulary: Vocabulary) -> bool:
    """Whether this can be a piece of a text: one of the vocabulary, or a run of unknown characters."""
    return token in vocabulary.ids or not any(character in vocabulary.ids for character in token)


def _with_joints(pieces: Iterable[str], vocabulary: Vocabulary) -> str:
    """subword-nmt's text: a piece that its word continues ends with `@@`.

    A piece that is the word marker alone goes into the piece behind it. An empty word (two markers in a
    row) is an empty token, so two blanks. Text that itself has `@@` at the end of a word is not told from a
    joint: whoever undoes the joints, `sed` or `parse_line`, removes it and joins that word to the next one.
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
    """Pieces of subword-nmt's text; a marker alone comes back as part of the piece behind it.

    A joint that ends the line joins nothing and is removed, as by subword-nmt's own `sed`.
    """
    if not text:
        return []
    if MARKER in text:
        raise UserError(f"{text[:20]!r} has a U+2581, as pieces have; is it --format pieces?")
    pieces: list[str] = []
    marker = MARKER if vocabulary.marks_first_word else ""
    for token in text.split(" "):
        pieces.append(marker + token.removesuffix(_JOINT))
        marker = "" if token.endswith(_JOINT) else MARKER
    return [piece for piece in pieces if piece]


def _id(token: str, vocabulary: Vocabulary) -> int:
    if token.isascii() and token.isdigit() and len(token) < 10 and int(token) < len(vocabulary):
        return int(token)
    raise UserError(f"{token[:20]!r} is no piece id; ids are whole numbers from 0 to {len(vocabulary) - 1}.")


def _unknown_format(format: str) -> UserError:
    return UserError(f"There is no format {format!r}; choose one of {', '.join(FORMATS)}.")
