"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from dpe.choices import BleuTokens, PresetName
from dpe.errors import UserError
from dpe.files import Stamp, is_standard_stream


def refuse_idle(options: Mapping[str, object], *, needs: str) -> None:
    """Refuse options that were given where nothing uses them; `None` is not given."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"{name} is for {needs}.")


def refuse_overwriting(out: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that is one of the files it would be made from."""
    for path in inputs:
        if out and path and out.is_file() and path.exists() and out.samefile(path):
            raise UserError(f"{out}: is an input as well; give the output another name.")


def refuse_two_streams(*inputs: Path | None) -> None:
    """Refuse `-` for more than one input: the first would take all of it."""
    if sum(path is not None and is_standard_stream(path) for path in inputs) > 1:
        raise UserError("Standard input (-) can be read once only; give files for the other inputs.")


def require_files(*paths: Path | None) -> None:
    """Refuse pipes and the like among what is read more than once."""
    for path in paths:
        if path is not None and str(path) == "-":
            raise UserError("Standard input cannot be read twice, which this needs; save it as a file.")
        if path is not None:
            Stamp.of(path)


def model_files(directory: Path) -> list[Path]:
    """What a training wrote into its directory, as far as it may be there."""
    from dpe.model.checkpoint import CURVE, PICTURE, SETTINGS, VOCABULARY

    names = [directory / name for name in (SETTINGS, VOCABULARY, CURVE, PICTURE)]
    return [*names, *directory.glob("*.safetensors"), *directory.glob("ctranslate2-*/*")]


VocabularyFile = Annotated[Path, typer.Option("--vocab", metavar="FILE", help="A SentencePiece model.")]
InputFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Text, plain, .gz or .xz; standard input if absent."),
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Where to write, packed if it ends in .gz or .xz; standard output if absent.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU where there is one.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print all numbers as JSON instead of tables.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")]

BleuTokenize = Annotated[
    BleuTokens,
    typer.Option(help="What BLEU takes for a token, as in sacreBLEU; zh and char for text without blanks."),
]

# Of both trainings.
Preset = Annotated[
    PresetName,
    typer.Option(
        help="Size of the network, and how it is trained; base is the paper's. Options change the training; "
        "another size takes a recipe."
    ),
]
TrainTarget = Annotated[Path, typer.Option(metavar="FILE", help="Target side of the training text.")]
DevTarget = Annotated[Path, typer.Option(metavar="FILE", help="Target side of the development text.")]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="Passes over the text. [default: the preset's, or no limit with --steps]"),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Updates; alone or beside --epochs.")]
Accumulate = Annotated[int | None, typer.Option(min=1, help="Batches in one update. [default: the preset's]")]
LearningRate = Annotated[float | None, typer.Option(min=0.0, help="[default: the preset's]")]
Warmup = Annotated[int | None, typer.Option(min=0, help="Updates of rising rate. [default: the preset's]")]
Dropout = Annotated[
    float | None, typer.Option(min=0.0, max=1.0, help="Of the network. [default: the preset's]")
]
Threads = Annotated[int | None, typer.Option(min=1, max=1000, help="CPU threads. [default: all cores]")]
Bf16 = Annotated[bool, typer.Option("--bf16", help="Compute in bfloat16 on a GPU.")]
SaveMinutes = Annotated[
    float, typer.Option(min=0.0, help="Save at least this often, beside every epoch's end.")
]
Average = Annotated[int, typer.Option(min=1, help="Try the mean of the last N epochs' weights.")]


def named_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """A callback for outputs that are files only."""
    if path is not None and is_standard_stream(path):
        raise UserError(
            f"{parameter.opts[0]} takes the name of a file; this is not written to standard output."
        )
    return path
