"""Commands of the text layer: demo-corpus, clean, vocab, pieces, encode, decode, noise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpe.choices import CountMethod, DictionaryFormat, Normalization, VocabularyType
from dpe.commands import options
from dpe.commands.options import named_file, refuse_overwriting, setting_option
from dpe.errors import UserError, refuse
from dpe.files import is_standard_stream
from dpe.progress import Progress
from dpe.text.learning import VocabularySettings

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary


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
    sample_lines: Annotated[int, setting_option(VocabularySettings, "sample_lines")] = 5_000_000,
    protect: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Strings, one a line, that are always one piece.")
    ] = None,
    listing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write all pieces and their scores, for other toolkits."),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Convert codes of subword-nmt, or a tokenizer.json of Hugging Face, instead of learning.",
        ),
    ] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --from codes: the strings of --glossaries, one a line."),
    ] = None,
    from_segmenter: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Prune the vocabulary of this segmenter instead of learning one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="With --from-segmenter: processes. [default: one per core]")
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Learn one vocabulary from all the text given (a SentencePiece model).

    With --from, convert another tool's vocabulary; dpe then segments as that tool does. Codes name only the
    characters that were merged; give the text that they were learned from too, to have all its characters.

    With --from-segmenter it is the vocabulary of a trained segmenter, pruned to --size pieces: those stay
    whose removal would cost the segmenter's posterior over this text most. The result is a unigram model.

    Example: `dpe vocab --source train.en --target train.fi --size 8000 --out vocab.model`
    """
    from dpe.files import refuse_same_file
    from dpe.text.conversion import convert
    from dpe.text.corpus import read_lines, write_lines
    from dpe.text.learning import learn_vocabulary

    inputs = [*source, *target, *(path for path in (protect, from_, glossary) if path)]
    refuse_overwriting(out, *inputs)
    refuse_overwriting(listing, *inputs, out)
    refuse_same_file([path.resolve() for path in (out, listing) if path])
    refuse(
        (
            sum(map(is_standard_stream, inputs)) > 1,
            "Standard input (-) can be read only once; give files for the other inputs.",
        ),
        (not source and not target and not from_, "No text to learn from; give --source or --target files."),
        (glossary and not from_, "--glossary goes with --from; strings to --protect are for learning."),
        (protect and from_, "--protect is for learning; with --from, give the --glossary of the codes."),
        (from_ and from_segmenter, "--from and --from-segmenter exclude each other; give one of them."),
    )
    progress: Progress = context.obj
    if from_segmenter:
        learned = _pruned(context, from_segmenter)
    elif from_:
        strings = list(filter(None, read_lines(glossary))) if glossary else ()
        lines = (line for path in [*source, *target] for line in read_lines(path))
        learned = convert(from_, glossary=strings, text=progress.track(lines, "reading"))
    else:
        settings = VocabularySettings(
            size=size,
            type=kind,
            normalization=normalization,
            character_coverage=character_coverage,
            protected=tuple(filter(None, read_lines(protect))) if protect else (),
            sample_lines=sample_lines,
        )
        learned = learn_vocabulary([*source, *target], settings, progress=progress)
    learned.save(out)
    if listing:
        write_lines(listing, learned.listing())
    progress.say(f"{out}: {len(learned):,} pieces, {len(learned.characters):,} characters")


def _pruned(context: typer.Context, segmenter: Path) -> Vocabulary:
    """The vocabulary of a segmenter, pruned; from the options of `dpe vocab`."""
    from dpe.corpus_run.pruning import prune_vocabulary
    from dpe.training.processes import Session

    given = context.params
    for name in ("type", "normalization", "character_coverage", "protect"):
        parameter = "kind" if name == "type" else name
        if getattr(context.get_parameter_source(parameter), "name", "") == "COMMANDLINE":
            raise UserError(
                "--from-segmenter keeps the characters, normalisation and protected strings of its "
                f"vocabulary and gives a unigram model; leave --{name.replace('_', '-')} out."
            )
    if len(given["target"]) != 1 or len(given["source"]) > 1:
        raise UserError("--from-segmenter needs one --target file, and at most one --source file.")
    return prune_vocabulary(
        given["out"],
        segmenter=segmenter,
        source=next(iter(given["source"]), None),
        target=given["target"][0],
        size=given["size"],
        session=Session(device=given["device"], workers=given["workers"], progress=context.obj),
    )


def pieces(
    context: typer.Context,
    *,
    vocab: options.VocabularyFile,
    format: Annotated[
        DictionaryFormat, typer.Option(help="The toolkit; plain is one piece a line.")
    ] = "plain",
    counts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write how often each piece occurs in this segmented text (--format pieces)."
        ),
    ] = None,
    target_vocab: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For hf-marian: the target's, if it is another.")
    ] = None,
    out: options.OutFile = None,
) -> None:
    """List the pieces that text is segmented into: the dictionary that another toolkit needs.

    Special symbols (padding, unknown, begin, end) are the toolkit's; plain, fairseq and eole lists have none,
    because these toolkits add them. hf-marian is a directory for MarianTokenizer.from_pretrained.

    Example: `dpe pieces --vocab vocab.model --format fairseq --out dict.txt`
    """
    from dpe.text.corpus import read_lines, write_lines
    from dpe.text.dictionaries import Dictionary, count_pieces, write_marian_tokenizer
    from dpe.text.vocabulary import Vocabulary

    has_counts, is_directory = format in ("plain", "fairseq", "eole"), format == "hf-marian"
    refuse(
        (counts and not has_counts, f"A dictionary for {format} has no counts; leave --counts out."),
        (target_vocab and not is_directory, "--target-vocab is for hf-marian; write a dictionary per side."),
        (
            is_directory and (out is None or is_standard_stream(out)),
            "hf-marian is a directory; give its name as --out.",
        ),
        (is_directory and out and out.exists(), f"{out} already exists; choose another --out, or remove it."),
    )
    refuse_overwriting(out, vocab, counts)
    vocabulary = Vocabulary.load(vocab)
    if out and is_directory:
        write_marian_tokenizer(out, vocabulary, Vocabulary.load(target_vocab) if target_vocab else vocabulary)
        return
    progress: Progress = context.obj
    dictionary = Dictionary(vocabulary, format)
    counted = count_pieces(progress.track(read_lines(counts), "counting"), vocabulary) if counts else None
    write_lines(out, dictionary.lines(counted))
    if dictionary.left_out:
        some = ", ".join(map(repr, dictionary.left_out[:3]))
        progress.say(f"left out {len(dictionary.left_out)} pieces that {format} cannot have ({some})")


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
    # Where a tab may be text, one that separates segmentations stands beside the marker of a word.
    may_be_text = format != "ids" and "\t" in vocabulary.normalize("a\tb")
    beside = f"(?<={MARKER})\t" if vocabulary.marks_ends else f"\t(?={MARKER})"
    separator = re.compile(beside if may_be_text else "\t")

    def decoded() -> Iterator[str]:
        for number, line in enumerate(progress.track(read_lines(file), "decoding"), start=1):
            cuts = separator.split(line)
            try:
                yield "\t".join(vocabulary.decode(parse_line(cut, format, vocabulary)) for cut in cuts)
            except UserError as error:
                raise UserError(f"{file or 'standard input'}, line {number}: {error}") from error

    refuse_overwriting(out, file, vocab)
    write_lines(out, decoded())


def noise(
    *,
    file: options.InputFile = None,
    rate: Annotated[float, typer.Option(min=0.0, max=1.0, help="The share of letters that is edited.")],
    seed: options.Seed = 1,
    out: options.OutFile = None,
) -> None:
    """Make typing errors: swap neighbouring letters, drop, insert, replace. One line in, one line out.

    New letters are drawn from those of the line. Its errors depend on rate, seed, its number and itself only.

    Example: `dpe noise --rate 0.02 --seed 1 test.en > test.noisy.en`
    """
    from dpe.evaluation.noise import add_noise
    from dpe.text.corpus import read_lines, write_lines

    refuse_overwriting(out, file)
    write_lines(out, add_noise(read_lines(file), rate=rate, seed=seed))
