"""The dictionary that each toolkit reads: the pieces of a vocabulary, and the toolkit's own special symbols.

plain        `▁two`            a piece a line; with counts `▁two TAB 12`. JoeyNMT's voc_file
fairseq      `▁two 12`         fairseq adds its special symbols itself
eole         `▁two TAB 12`     eole too
marian-yml   `"▁two": 2`       YAML; `</s>` is 0, `<unk>` is 1
sockeye      `"▁two": 4`       JSON; `<pad>` is 0, `<unk>` 1, `<s>` 2, `</s>` 3
ctranslate2  `"▁two",`         JSON: all ids of the vocabulary in order, as in `shared_vocabulary.json`
hf-marian    a directory for MarianTokenizer of transformers, whose ids are the vocabulary's

A piece that a toolkit could not tell from its own symbols, or would split at white space, is left out: such
text is unknown there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpe.choices import DictionaryFormat
from dpe.errors import UserError
from dpe.files import whole_directory
from dpe.text.formats import parse_line

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary

# The symbols of each format that no piece may have, those with ids of their own first.
_SPECIAL: dict[str, tuple[str, ...]] = {
    "plain": (),
    "fairseq": ("<s>", "<pad>", "</s>", "<unk>"),
    "eole": ("<unk>", "<blank>", "<s>", "</s>"),
    "marian-yml": ("</s>", "<unk>"),
    "sockeye": ("<pad>", "<unk>", "<s>", "</s>"),
}
# Where a toolkit splits a line of pieces, or of its dictionary, beside spaces.
_SPLITS_AT_WHITE_SPACE = ("fairseq", "sockeye")
_LONGEST = 512  # positions that MarianTokenizer announces; a model may set another


def count_pieces(lines: Iterable[str], vocabulary: Vocabulary) -> Counter[str]:
    """How often each piece occurs in lines of segmented text."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(parse_line(line, "pieces", vocabulary))
    return counts


class Dictionary:
    """The pieces that text is segmented into, for one of the formats that are a file."""

    def __init__(self, vocabulary: Vocabulary, format: DictionaryFormat = "plain") -> None:
        if format == "hf-marian":
            raise UserError("hf-marian is a directory; use write_marian_tokenizer.")
        self._vocabulary, self._format = vocabulary, format
        special = set(_SPECIAL.get(format, ()))
        every = list(vocabulary.written_ids)
        self.left_out = [piece for piece in every if piece in special or self._is_split(piece)]
        self.pieces = [piece for piece in every if piece not in set(self.left_out)]

    def lines(self, counts: Mapping[str, int] | None = None) -> Iterator[str]:
        """The lines of the file; without counts fairseq and eole are told 1 for every piece."""
        match self._format:
            case "fairseq":
                yield from (f"{piece} {1 if counts is None else counts[piece]}" for piece in self.pieces)
            case "eole":
                yield from (f"{piece}\t{1 if counts is None else counts[piece]}" for piece in self.pieces)
            case "marian-yml":
                yield from (f"{_yaml(piece)}: {i}" for piece, i in self._numbered().items())
            case "sockeye":
                yield from json.dumps(self._numbered(), ensure_ascii=False, indent=4).split("\n")
            case "ctranslate2":
                yield from json.dumps(token_names(self._vocabulary), ensure_ascii=False, indent=2).split("\n")
            case _:
                yield from (piece if counts is None else f"{piece}\t{counts[piece]}" for piece in self.pieces)

    def _is_split(self, piece: str) -> bool:
        if self._format in _SPLITS_AT_WHITE_SPACE:
            return any(character.isspace() for character in piece)
        return self._format == "eole" and "\t" in piece

    def _numbered(self) -> dict[str, int]:
        """The toolkit's symbols and the pieces by its own ids."""
        return {piece: number for number, piece in enumerate([*_SPECIAL[self._format], *self.pieces])}


def token_names(vocabulary: Vocabulary) -> list[str]:
    """A name for every id, all different: the piece, or for special pieces that repeat one a longer name.

    CTranslate2 finds ids by name. Only special pieces that the vocabulary had to add can repeat a piece.
    """
    names: list[str] = []
    seen: set[str] = set()
    for number, piece in enumerate(vocabulary.pieces):
        name = piece if piece not in seen else f"{piece}{number}"
        while name in seen or (name != piece and name in vocabulary.ids):
            name += "_"
        names.append(name)
        seen.add(name)
    return names


def source_names(vocabulary: Vocabulary) -> list[str]:
    """As `token_names`, of the source's vocabulary, where special ids have the names that the target's have.

    CTranslate2 knows one name for the end of sentence and one for unknown pieces of both sides.
    """
    source, of_target = vocabulary.source, token_names(vocabulary)
    special = {
        getattr(source, role): of_target[getattr(vocabulary, role)]
        for role in ("pad_id", "unk_id", "bos_id", "eos_id")
    }
    taken, names = set(special.values()), []
    for number, name in enumerate(token_names(source)):
        while number not in special and name in taken:
            name += "_"  # noqa: PLW2901
        taken.add(name)
        names.append(special.get(number, name))
    return names


def write_marian_tokenizer(out: Path, source: Vocabulary, target: Vocabulary) -> None:
    """A directory that `MarianTokenizer.from_pretrained` of transformers loads, with the ids of these.

    `convert_tokens_to_ids` takes pieces as dpe writes them. Vocabularies with the same pieces share their
    ids; the others are two files, and the special symbols must then have the same names and ids in both.
    """
    names = [token_names(source), token_names(target)]
    special = [
        {what: side[i] for what, i in (("unk", v.unk_id), ("eos", v.eos_id), ("pad", v.pad_id))}
        for side, v in zip(names, (source, target), strict=True)
    ]
    ids = [(v.unk_id, v.eos_id, v.pad_id) for v in (source, target)]
    is_separate = names[0] != names[1]
    if special[0] != special[1] or ids[0] != ids[1]:
        raise UserError(
            "MarianTokenizer needs the same unknown, end and padding symbols in both vocabularies; "
            "learn both with dpe vocab."
        )
    config = {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": _LONGEST,
        "separate_vocabs": is_separate,
        **{f"{what}_token": name for what, name in special[0].items()},
    }
    with whole_directory(out) as aside:
        source.save(aside / "source.spm")
        target.save(aside / "target.spm")
        _write_json(aside / "vocab.json", {name: i for i, name in enumerate(names[0])})
        if is_separate:
            _write_json(aside / "target_vocab.json", {name: i for i, name in enumerate(names[1])})
        _write_json(aside / "tokenizer_config.json", config)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _yaml(piece: str) -> str:
    """A string in double quotes; what is not printable is escaped, because YAML would refuse or fold it."""
    escaped = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escaped.get(c, c if c.isprintable() else f"\\U{ord(c):08X}") for c in piece) + '"'
