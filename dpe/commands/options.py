"""Options that several commands share, and checks of arguments together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dpe.choices import BleuTokens, PieceFormat, PresetName
from dpe.errors import UserError, refuse
from dpe.files import Stamp, is_standard_stream
from dpe.model.settings import ModelSettings, from_preset
from dpe.settings import parse_override

if TYPE_CHECKING:
    from dpe.training.processes import Session


Model = TypeVar("Model", bound=ModelSettings)


def setting_option(
    cls: type[Any], name: str, *flags: str, default: str = "", parser: Callable[[str], Any] | None = None
) -> Any:
    """An option for a field of a settings class, with the field's help text and default."""
    (field,) = [one for one in fields(cls) if one.name == name]
    shown = default or ("" if field.default in (None, False) else str(field.default))
    help = field.metadata["help"] + (f" [default: {shown}]" if shown else "")
    metavar = "SHARE" if parser else None
    return typer.Option(*flags, help=help, show_default=False, parser=parser, metavar=metavar)


PRESET = "the preset's"
VocabularyFile = Annotated[Path, typer.Option("--vocab", metavar="FILE", help="A SentencePiece model.")]
JointVocabulary = Annotated[
    Path | None, typer.Option("--vocab", metavar="FILE", help="A SentencePiece model, of both sides.")
]
SourceVocabulary = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --target-vocab in place of --vocab: that of the source."),
]
TargetVocabulary = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --source-vocab: that of the target.")
]
InputFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Text, plain, .gz, .xz or .zst; standard input if absent."),
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Where to write, compressed if it ends in .gz, .xz or .zst; standard output if absent.",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Work on the Ray cluster at this address (auto: the one that this machine is part of), or, "
        "without an address, on one that is started on this machine.",
    ),
]
Format = Annotated[PieceFormat, typer.Option(help="How pieces are written.")]

# Of count-based segmentations.
DropoutOfCounts = Annotated[float, typer.Option(min=0.0, max=1.0, help="For bpe-dropout.")]
Alpha = Annotated[
    float | None,
    typer.Option(min=0.0, help="For unigram: sample with this sharpness instead of the best segmentation."),
]
Skew = Annotated[
    float,
    typer.Option(min=0.0, help="For uniform: the weight of a segmentation of n pieces is exp(-SKEW n)."),
]

Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU if there is one.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print all numbers as JSON instead of tables.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")]
GoldFile = Annotated[
    Path | None,
    typer.Option(
        "--gold", metavar="FILE", help="Gold: word, tab, morphs separated by spaces; may be .gz or .xz."
    ),
]
BleuTokenize = Annotated[
    BleuTokens,
    typer.Option(help="What BLEU takes for a token, as in sacreBLEU; zh and char for text without spaces."),
]

# Of both trainings.
Preset = Annotated[PresetName, typer.Option(help="Sizes and training; base is the paper's.")]
SourceSide = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Source side, plain, .gz, .xz or .zst.")
]
TrainTarget = Annotated[Path, typer.Option(metavar="FILE", help="Target side of the training text.")]
DevTarget = Annotated[Path, typer.Option(metavar="FILE", help="Target side of the development text.")]
ModelOut = Annotated[
    Path, typer.Option(metavar="DIR", file_okay=False, help="Where the model goes; resumes a model there.")
]
Epochs = Annotated[int | None, setting_option(ModelSettings, "epochs", default=PRESET)]
Steps = Annotated[int | None, setting_option(ModelSettings, "steps")]
Accumulate = Annotated[int | None, setting_option(ModelSettings, "accumulate", default=PRESET)]
LearningRate = Annotated[float | None, setting_option(ModelSettings, "learning_rate", default=PRESET)]
Warmup = Annotated[int | None, setting_option(ModelSettings, "warmup", default=PRESET)]
Dropout = Annotated[float | None, setting_option(ModelSettings, "dropout", default=PRESET)]
TrainingSeed = Annotated[int | None, setting_option(ModelSettings, "seed")]
Bf16 = Annotated[bool | None, setting_option(ModelSettings, "bf16", "--bf16")]
Average = Annotated[int | None, setting_option(ModelSettings, "average")]
Patience = Annotated[int | None, setting_option(ModelSettings, "patience")]
EvaluateUpdates = Annotated[int | None, setting_option(ModelSettings, "evaluate_updates")]
UntilCutsChangeLessThan = Annotated[
    float | None,
    setting_option(
        ModelSettings,
        "until_cuts_change_less_than",
        default="none; write 0.01 or 1%",
        parser=lambda text: float(text.removesuffix("%")) / (100 if text.endswith("%") else 1),
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, max=1000, help="CPU threads. [default: all cores]")]
LoadWorkers = Annotated[
    int,
    typer.Option(
        min=1, help="Processes that read and segment training lines; they change nothing but the speed."
    ),
]
SaveMinutes = Annotated[
    float, typer.Option(min=0.0, help="Save at least this often, beside every epoch's end.")
]
Changes = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change any other setting, as in --set width=512; docs/usage.md lists them; may be repeated.",
    ),
]


def given_settings(
    context: typer.Context, presets: dict[str, Model], changes: Sequence[str], **other: Any
) -> Model:
    """The settings of a training: a preset, then the options that are settings, `other` ones, then `--set`.

    An option belongs to the setting of its name.
    """
    names = {"preset", *(field.name for field in fields(presets["small"]))}
    options = {name: value for name, value in context.params.items() if name in names} | other
    given = {name: value for name, value in options.items() if value is not None}
    for change in changes:
        given |= parse_override(change)
    return from_preset(presets, given, f"dpe {context.info_name}")


def vocabularies(
    vocab: Path | None, source_vocab: Path | None, target_vocab: Path | None
) -> tuple[Path, Path | None]:
    """The vocabulary of both sides, or of the target and of the source."""
    refuse(
        (
            vocab is not None and (source_vocab or target_vocab),
            "--vocab is the vocabulary of both sides; leave it out, or --source-vocab and --target-vocab.",
        ),
        (
            vocab is None and not (source_vocab and target_vocab),
            "Give --vocab for both sides, or --source-vocab and --target-vocab.",
        ),
    )
    joint_or_target = vocab or target_vocab
    assert joint_or_target is not None
    return joint_or_target, source_vocab


def training_session(context: typer.Context) -> Session:
    """What computes, from the options of a training."""
    from dpe.training.processes import Session

    given = context.params
    return Session(
        device=given["device"],
        threads=given["threads"],
        workers=given.get("cut_workers"),
        keep_cuts=given.get("keep_cuts"),
        load_workers=given["load_workers"],
        save_seconds=60 * given["save_minutes"],
        progress=context.obj,
    )


def refuse_overwriting(out: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that is one of the files it would be made from."""
    for path in inputs:
        if out and path and out.is_file() and path.exists() and out.samefile(path):
            raise UserError(f"{out} is also an input; give the output another name.")


def require_files(*paths: Path | None) -> None:
    """Refuse pipes and the like among files that are read more than once."""
    for path in paths:
        if path is not None and str(path) == "-":
            raise UserError("Standard input cannot be read twice; save it as a file.")
        if path is not None:
            Stamp.of(path)


def named_file(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """A callback for outputs that are files only."""
    if path is not None and is_standard_stream(path):
        raise UserError(f"{parameter.opts[0]} needs the name of a file; this cannot go to standard output.")
    return path
