"""Vocabularies of other tools as SentencePiece models that segment text as these tools do.

subword-nmt (codes, `#version: 0.2`). Its pieces say where a word ends (`est</w>`), so the model marks ends of
words: `new est▁`. The last character of a word carries the marker before any merge, as `t</w>` does: such
pieces have a score above 0 (`Vocabulary.carriers`).

Hugging Face (`tokenizer.json`). BPE or Unigram with Metaspace, whose marker begins a word. Ids stay.

Both apply a list of merges, each a pair of pieces. SentencePiece knows the merged pieces alone: it merges any
neighbours that together are a piece, the best piece first. That is the same if every piece, segmented by
itself in SentencePiece's way, comes from a pair of the list, later than its parts. For as long as no merge
crosses the ends of a span, what happens inside is what happens to its text by itself, so no other parts of a
piece ever become neighbours. A list for which this does not hold is refused.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import sentencepiece

from dpe.errors import UserError, refuse
from dpe.text.bpe import start_symbols
from dpe.text.corpus import read_lines
from dpe.text.learning import check_protected
from dpe.text.sentencepiece_model import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    empty_model,
    parse,
)
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, SPECIAL_PIECES, byte_piece

_VERSION, _END = "#version: 0.2", "</w>"
# An entry of a glossary, a regular expression, that matches one string only: `<ph>`, `U\.S\.`.
_LITERAL = re.compile(r"(?:\\[^A-Za-z0-9]|[^\\.^$*+?{}\[\]|()])+")
# Special symbols of a tokenizer.json by their usual names.
_ROLES = {"pad": ("<pad>", "[PAD]"), "bos": ("<s>", "<bos>", "[BOS]"), "eos": ("</s>", "<eos>", "[EOS]")}

# What a BPE model may use and SentencePiece cannot.
_LACKING = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")

Merge = tuple[str, str]


def convert(path: Path, *, glossary: Sequence[str] = (), text: Iterable[str] = ()) -> Vocabulary:
    """The vocabulary in a file of subword-nmt's codes or a `tokenizer.json`.

    Codes know only characters that some merge has; those of `text` become pieces too. `glossary` has the
    strings that `subword-nmt apply-bpe --glossaries` keeps whole.
    """
    lines = list(read_lines(path))
    if lines and lines[0].lstrip().startswith("{"):
        refuse((glossary, "--glossary belongs to subword-nmt's codes; leave it out."))
        return from_hugging_face("\n".join(lines), name=str(path))
    return from_subword_nmt(lines, name=str(path), glossary=glossary, text=text)


def from_subword_nmt(
    codes: Sequence[str], *, name: str, glossary: Sequence[str] = (), text: Iterable[str] = ()
) -> Vocabulary:
    """The model of subword-nmt's codes, given as lines."""
    if not codes or codes[0].strip() != _VERSION:
        raise UserError(f"{name} is neither a tokenizer.json nor codes of subword-nmt ({_VERSION}).")
    merges = [_code(line, f"{name}, line {number}") for number, line in enumerate(codes[1:], start=2)]
    protected = check_protected([_literal(entry) for entry in glossary])
    _refuse_overlaps(protected)
    characters = {c for merge in merges for part in merge for c in part}
    characters |= {c for line in text for c in line}
    characters -= {MARKER, " "}
    carriers = {character + MARKER for character in characters}
    model = empty_model(BPE)
    model.trainer_spec.treat_whitespace_as_suffix = True
    for role, piece in SPECIAL_PIECES.items():
        setattr(model.trainer_spec, f"{role}_id", len(model.pieces))
        model.pieces.add(piece=piece, type=UNKNOWN if role == "unk" else CONTROL)
    for piece in protected:
        model.pieces.add(piece=piece, type=USER_DEFINED)
    pieces = [*merge_order(merges, name, carriers), *sorted(characters), MARKER]
    scores = {piece: -float(rank) for rank, piece in enumerate(pieces)} | dict.fromkeys(sorted(carriers), 1.0)
    for piece, score in scores.items():
        if piece not in protected:
            model.pieces.add(piece=piece, score=score)
    return Vocabulary(model.SerializeToString(), name=name)


def _code(line: str, place: str) -> Merge:
    """The pair of a line, its end of a word written as a marker."""
    parts = line.strip("\r ").split(" ")
    if len(parts) != 2:
        raise UserError(f"{place}: {line[:40]!r} is not two pieces with a space between them.")
    left, right = parts
    body = right.removesuffix(_END)
    refuse(
        (MARKER in line, f"{place}: has U+2581, which SentencePiece takes for a space; remove it."),
        (
            _END in left + body or not body,
            f"{place}: {line[:40]!r} has {_END} inside, which is no end of a word; remove the line.",
        ),
    )
    return left, body + MARKER * (body != right)


def _literal(entry: str) -> str:
    """The only string that an entry of a glossary matches."""
    if not _LITERAL.fullmatch(entry):
        raise UserError(
            f"The entry {entry!r} of the glossary is a regular expression; list the strings that it matches."
        )
    return re.sub(r"\\(.)", r"\1", entry)


def _refuse_overlaps(strings: Sequence[str]) -> None:
    """subword-nmt splits at one entry after the other, SentencePiece takes the longest at each place."""
    for one in strings:
        for other in strings:
            overlaps = other in one or any(one.endswith(other[:n]) for n in range(1, len(other)))
            if one != other and overlaps:
                raise UserError(
                    f"{one!r} and {other!r} of the glossary overlap, which subword-nmt and SentencePiece "
                    "resolve differently; leave one of them out."
                )


def merge_order(merges: Sequence[Merge], name: str, carriers: Collection[str] = ()) -> list[str]:
    """The merged pieces, the best first; refuses merges that a ranking of pieces does not reproduce.

    `carriers` are the last characters with their markers, which are one symbol from the start.
    """
    places = {merge: place for place, merge in reversed(list(enumerate(merges)))}
    ranks: dict[str, int] = {}
    for place, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, place)
    made: dict[str, int] = {}  # the place of the pair that makes a piece; what has none never comes up
    for piece in ranks:
        pair = _last_merge(piece, ranks, carriers)
        if pair is None:
            continue
        left, right = pair
        if pair not in places:
            raise UserError(
                f"{name} does not merge {left!r} with {right!r}, but SentencePiece would, because {piece!r} "
                "is a piece; such merges cannot be represented."
            )
        made[piece] = places[pair]
        if max(made.get(part, ranks.get(part, -1)) for part in pair) > places[pair]:
            raise UserError(
                f"{name} merges {left!r} with {right!r} before it makes both; merges whose order is not that "
                "of the merged pieces cannot be represented."
            )
    if list(made) != sorted(made, key=made.__getitem__):
        raise UserError(
            f"{name} has several merges for one piece; merges whose order is not that of the merged pieces "
            "cannot be represented."
        )
    return list(ranks)


def _last_merge(piece: str, ranks: Mapping[str, int], carriers: Collection[str]) -> Merge | None:
    """The merge that completes a piece that SentencePiece segments by itself; None if it stays in parts."""
    symbols = list(start_symbols(piece, carriers))
    while len(symbols) > 2:
        pairs = [left + right for left, right in pairwise(symbols)]
        at = min(range(len(pairs)), key=lambda at: ranks.get(pairs[at], inf))  # the leftmost of equals
        if pairs[at] not in ranks:
            return None
        symbols[at : at + 2] = [pairs[at]]
    return (symbols[0], symbols[1]) if len(symbols) == 2 else None


def from_hugging_face(content: str, *, name: str) -> Vocabulary:
    """The model of a `tokenizer.json`, with its ids."""
    try:
        table = json.loads(content)
        model, splitter, parts = table["model"], table["pre_tokenizer"] or {}, _parts(table["normalizer"])
        kind, listed = model.get("type"), model["vocab"]
        ids = {piece: i for i, (piece, _) in enumerate(listed)} if kind == "Unigram" else dict(listed)
        special = {token["content"] for token in table["added_tokens"] if token.get("special")}
        free = [token["content"] for token in table["added_tokens"] if not token.get("special")]
        ids |= {token["content"]: token["id"] for token in table["added_tokens"]}
        is_bytes = "ByteLevel" in json.dumps([splitter, parts])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{name} is not a tokenizer.json of Hugging Face.") from error
    lacking = [
        key for key in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges") if model.get(key)
    ]
    is_metaspace = splitter.get("type") == "Metaspace" and splitter.get("replacement") == MARKER
    refuse(
        (is_bytes, f"{name} is byte-level: its pieces are bytes, those of SentencePiece are characters."),
        (
            kind not in ("BPE", "Unigram"),
            f"{name} has a {kind} model; it must be BPE or Unigram.",
        ),
        (lacking, f"{name} uses {' and '.join(lacking)}, which SentencePiece does not have."),
        (
            not is_metaspace,
            f"{name} splits text by {splitter.get('type')}; only Metaspace with U+2581 can be represented.",
        ),
        (free, f"{name} splits words around the added token {(free or [''])[0]!r}; SentencePiece does not."),
        (sorted(ids.values()) != list(range(len(ids))), f"{name} leaves ids out; SentencePiece cannot."),
    )
    built = empty_model(UNIGRAM if kind == "Unigram" else BPE)
    _put_normalizer(built.normalizer_spec, parts, name)
    scheme = splitter.get("prepend_scheme", "always" if splitter.get("add_prefix_space", True) else "never")
    built.normalizer_spec.add_dummy_prefix = scheme != "never"
    pieces = sorted(ids, key=ids.__getitem__)
    scores = dict(listed) if kind == "Unigram" else _bpe_scores(model["merges"], pieces, name)
    unknown = model.get("unk_token")
    if kind == "Unigram" and model.get("unk_id") is not None:
        unknown = pieces[model["unk_id"]]
    bytes_ = set(map(byte_piece, range(256))) if model.get("byte_fallback") else set()
    refuse((bytes_ - ids.keys(), f"{name} has byte_fallback, but not all 256 bytes are pieces."))
    built.trainer_spec.byte_fallback = bool(bytes_)
    for piece in pieces:
        is_text = piece in scores and piece not in special
        type = UNKNOWN if piece == unknown else BYTE if piece in bytes_ else NORMAL if is_text else CONTROL
        built.pieces.add(piece=piece, score=scores.get(piece, 0.0), type=type)
    _put_roles(built, pieces, unknown, special)
    return Vocabulary(built.SerializeToString(), name=name)


def _parts(normalizer: Any) -> list[dict[str, Any]]:
    """The normalizers of a sequence, nested or not, in order."""
    if not normalizer:
        return []
    inner = normalizer.get("normalizers") if normalizer["type"] == "Sequence" else None
    return [normalizer] if inner is None else [part for one in inner for part in _parts(one)]


def _put_normalizer(spec: Any, parts: Sequence[Mapping[str, Any]], name: str) -> None:
    """SentencePiece's normalisation that does what these normalizers do."""
    spaces = {"pattern": {"Regex": " {2,}"}}
    spec.remove_extra_whitespaces = any(spaces.items() <= part.items() for part in parts)
    rest = [part for part in parts if part["type"] != "Strip" and not spaces.items() <= part.items()]
    match [part["type"] for part in rest]:
        case []:
            pass
        case ["Precompiled"]:
            spec.name, spec.precompiled_charsmap = "user_defined", b64decode(rest[0]["precompiled_charsmap"])
        case ["NFKC"] | ["Nmt", "NFKC"]:
            rule = "nfkc" if len(rest) == 1 else "nmt_nfkc"
            found = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_model_proto()
            spec.name = rule
            spec.precompiled_charsmap = parse(found, rule).normalizer_spec.precompiled_charsmap
        case kinds:
            raise UserError(
                f"{name} normalises text by {', '.join(kinds)}; only NFKC, Nmt and NFKC, and Precompiled can "
                "be represented."
            )


def _bpe_scores(merges: Sequence[Any], pieces: Sequence[str], name: str) -> dict[str, float]:
    """Merged pieces, the best first, then characters; other pieces of the vocabulary never come up."""
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    order = merge_order([(left, right) for left, right in pairs], name)
    ordered = [*order, *(piece for piece in pieces if len(piece) == 1)]
    return {piece: -float(rank) for rank, piece in enumerate(ordered)}


def _put_roles(model: Any, pieces: Sequence[str], unknown: str | None, special: Collection[str]) -> None:
    """Which ids are special; SentencePiece must have an unknown piece, so it gets one."""
    spec = model.trainer_spec
    for role, names in _ROLES.items():
        found = next((piece for piece in names if piece in special and piece != unknown), None)
        setattr(spec, f"{role}_id", -1 if found is None else pieces.index(found))
        setattr(spec, f"{role}_piece", found or names[0])
    if unknown is None:
        unknown = next(name for name in ("<unk>", "<unk>_", "<unk>__") if name not in pieces)
        model.pieces.add(piece=unknown, type=UNKNOWN)
    spec.unk_piece, spec.unk_id = unknown, [one.piece for one in model.pieces].index(unknown)
