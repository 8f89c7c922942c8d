"""Commands of the text layer: demo-corpus, clean, vocab, pieces, encode, decode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dpe.choices import CountMethod, Normalization, VocabularyType
from dpe.commands import options
from dpe.commands.options import named_file, refuse_overwriting, setting_option
from dpe.errors import UserError
from dpe.progress import Progress
from dpe.text.learning import VocabularySettings


def demo_corpus(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where to write the files.")],
    pairs: Annotated[int, typer.Option(min=1, help="Training pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Another seed gives another corpus.")] = 1,
) -> None:
    """Write the built-in English-Finnish corpus, which is generated, with its gold morphemes.

    Example: `dpe demo-corpus --out corpus`
    """
    from dpe.demo.grammar import write_corpus

    report = write_corpus(out, pairs=pairs, seed=seed)
    progress: Progress = context.obj
    progress.say(f"{out}: {report}")


def clean(
    context: typer.Context,
    *,
    source: Annotated[Path, typer.Option(metavar="FILE", help="Source side, plain, .gz, .xz or .zst.")],
    target: Annotated[Path, typer.Option(metavar="FILE", help="Target side.")],
    out_source: Annotated[
        Path, typer.Option(metavar="FILE", callback=named_file, help="Where the kept source lines go.")
    ],
    out_target: Annotated[
        Path, typer.Option(metavar="FILE", callback=named_file, help="Where the kept target lines go.")
    ],
    max_tokens: Annotated[int, typer.Option(min=1, help="Drop pairs with this many tokens on a side.")] = 80,
    max_ratio: Annotated[
        float | None,
        typer.Option(min=1.0, help="Drop pairs whose token counts differ by more than this factor."),
    ] = None,
    moses: Annotated[
        tuple[str, str] | None, typer.Option(metavar="LANG LANG", help="Tokenise by Moses' rules.")
    ] = None,
) -> None:
    """Prepare parallel text as the paper does: drop empty and long pairs; keep case and diacritics.

    Example: `dpe clean --source raw.en --target raw.fi --out-source train.en --out-target train.fi`
    """
    from dpe.text.corpus import read_pairs
    from dpe.text.preparation import CleaningRules
    from dpe.text.preparation import clean as clean_pairs

    for out in (out_source, out_target):
        refuse_overwriting(out, source, target)
    source_language, target_language = moses or (None, None)
    rules = CleaningRules(
        max_tokens=max_tokens,
        max_ratio=max_ratio,
        source_language=source_language,
        target_language=target_language,
    )
    progress: Progress = context.obj
    pairs = progress.track(read_pairs(source, target), "cleaning")
    progress.say(str(clean_pairs(pairs, out_source=out_source, out_target=out_target, rules=rules)))


def vocab(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", callback=named_file, help="Where to write the model.")],
    source: Annotated[list[Path], typer.Option(metavar="FILE", help="Source text; may be repeated.")] = [],  # noqa: B006
    target: Annotated[list[Path], typer.Option(metavar="FILE", help="Target text; may be repeated.")] = [],  # noqa: B006
    size: Annotated[int, setting_option(VocabularySettings, "size")] = 32_000,
    kind: Annotated[VocabularyType, setting_option(VocabularySettings, "type", "--type")] = "bpe",
    normalization: Annotated[Normalization, setting_option(VocabularySettings, "normalization")] = "nfkc",
    character_coverage: Annotated[float, setting_option(VocabularySettings, "character_coverage")] = 1.0,
    protect: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Strings, one a line, that are always one piece.")
    ] = None,
    listing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write all pieces and their scores, for other toolkits."),
    ] = None,
) -> None:
    """Learn one vocabulary from all the text given (a SentencePiece model).

    Example: `dpe vocab --source train.en --target train.fi --size 8000 --out vocab.model`
    """
    from dpe.files import is_standard_stream, refuse_same_file
    from dpe.text.corpus import read_lines, write_lines
    from dpe.text.learning import learn_vocabulary

    refuse_overwriting(out, *source, *target, protect)
    refuse_overwriting(listing, *source, *target, protect, out)
    if sum(path is not None and is_standard_stream(path) for path in (*source, *target, protect)) > 1:
        raise UserError("Standard input (-) can be read only once; give files for the other inputs.")
    refuse_same_file([path.resolve() for path in (out, listing) if path])
    if not source and not target:
        raise UserError("No text to learn from; give --source or --target files.")
    protected = tuple(line for line in read_lines(protect) if line) if protect else ()
    settings = VocabularySettings(
        size=size,
        type=kind,
        normalization=normalization,
        character_coverage=character_coverage,
        protected=protected,
    )
    progress: Progress = context.obj
    lines = (line for path in [*source, *target] for line in read_lines(path))
    learned = learn_vocabulary(progress.track(lines, "reading"), settings)
    learned.save(out)
    if listing:
        write_lines(listing, learned.listing())
    progress.say(f"{out}: {len(learned):,} pieces, {len(learned.characters):,} characters")


def pieces(*, vocab: options.VocabularyFile, out: options.OutFile = None) -> None:
    """List the pieces that text is segmented into, one a line: the dictionary that another toolkit needs.

    Special pieces (padding, unknown, begin, end) are left out; toolkits have their own.

    Example: `dpe pieces --vocab vocab.model > pieces.txt`
    """
    from dpe.text.corpus import write_lines
    from dpe.text.vocabulary import Vocabulary

    refuse_overwriting(out, vocab)
    write_lines(out, Vocabulary.load(vocab).ids)


def encode(
    context: typer.Context,
    *,
    vocab: options.VocabularyFile,
    file: options.InputFile = None,
    method: Annotated[CountMethod, typer.Option(help="How to segment.")] = "bpe",
    dropout: options.DropoutOfCounts = 0.05,
    alpha: options.Alpha = None,
    nbest: Annotated[
        int, typer.Option(help="For unigram with --alpha: sample among this many best; -1 is all.")
    ] = -1,
    skew: options.Skew = 0.0,
    seed: Annotated[int, typer.Option(help="Random segmentations depend on seed, epoch and line only.")] = 1,
    epoch: Annotated[int, typer.Option(min=0, help="Another epoch gives other random segmentations.")] = 0,
    format: options.Format = "pieces",
    out: options.OutFile = None,
) -> None:
    """Segment text by counts: BPE, BPE dropout, longest match, unigram, uniform. One line in, one line out.

    Example: `dpe encode --vocab vocab.model --method bpe-dropout --epoch 3 train.fi > train.3.pieces`
    """
    from dpe.text.corpus import read_lines, write_lines
    from dpe.text.draws import Draw
    from dpe.text.formats import format_pieces
    from dpe.text.segmenters import make_segmenter
    from dpe.text.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(vocab)
    segmenter = make_segmenter(method, vocabulary, dropout=dropout, alpha=alpha, nbest=nbest, skew=skew)
    progress: Progress = context.obj
    refuse_overwriting(out, file, vocab)
    lines = enumerate(progress.track(read_lines(file), "encoding"))
    cut = (segmenter.cut(line, Draw(seed, epoch, number)) for number, line in lines)
    write_lines(out, (format_pieces(pieces, format, vocabulary) for pieces in cut))


def decode(
    context: typer.Context,
    *,
    vocab: options.VocabularyFile,
    file: options.InputFile = None,
    format: options.Format = "pieces",
    out: options.OutFile = None,
) -> None:
    """Turn pieces back into plain text. One line in, one line out; tabs between segmentations stay.

    Example: `dpe decode --vocab vocab.model train.pieces > train.txt`
    """
    from dpe.text.corpus import read_lines, write_lines
    from dpe.text.formats import parse_line
    from dpe.text.vocabulary import Vocabulary
    from dpe.text.words import MARKER

    vocabulary = Vocabulary.load(vocab)
    progress: Progress = context.obj
    # Where a tab may be text, one that separates segmentations stands before the marker of the next.
    may_be_text = format != "ids" and "\t" in vocabulary.normalize("a\tb")
    separator = re.compile(f"\t(?={MARKER})" if may_be_text else "\t")

    def decoded() -> Iterator[str]:
        for number, line in enumerate(progress.track(read_lines(file), "decoding"), start=1):
            cuts = separator.split(line)
            try:
                yield "\t".join(vocabulary.decode(parse_line(cut, format, vocabulary)) for cut in cuts)
            except UserError as error:
                raise UserError(f"{file or 'standard input'}, line {number}: {error}") from error

    refuse_overwriting(out, file, vocab)
    write_lines(out, decoded())
