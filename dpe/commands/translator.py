"""Commands of the translator: train-translator, translate, export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from dpe.choices import BleuTokens, SourceMethod, TargetMethod
from dpe.commands import options
from dpe.commands.options import given_settings, refuse_overwriting, setting_option, training_session
from dpe.progress import Progress
from dpe.translator.settings import TRANSLATOR_PRESETS, Search, TranslatorSettings

TranslatorDirectory = Annotated[
    Path, typer.Option("--translator", metavar="DIR", help="A directory that train-translator made.")
]


SegmenterOfTargets = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="A directory that train-segmenter made, for dpe and dpe-fixed."),
]
Cuts = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where the segmenter's targets are kept; translators may share it. [default: OUT/cuts]",
    ),
]
CutWorkers = Annotated[
    int | None, typer.Option(min=1, help="Processes that segment. [default: one per core; 1 on a GPU]")
]
KeepCuts = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Keep the segmenter's targets of so many epochs. [default: all with --cuts, else the last 2]",
    ),
]
Moses = Annotated[
    tuple[str, str] | None,
    typer.Option(
        metavar="LANG LANG",
        help="The text is tokenised by Moses' rules for these languages; translate does it by itself.",
    ),
]


def train_translator(
    context: typer.Context,
    *,
    vocab: options.JointVocabulary = None,
    source_vocab: options.SourceVocabulary = None,
    target_vocab: options.TargetVocabulary = None,
    source: Annotated[Path, typer.Option(metavar="FILE", help="Source side, plain, .gz, .xz or .zst.")],
    target: options.TrainTarget,
    dev_source: Annotated[Path, typer.Option(metavar="FILE", help="Source side of the development text.")],
    dev_target: options.DevTarget,
    out: options.ModelOut,
    source_method: Annotated[SourceMethod, setting_option(TranslatorSettings, "source_method")] = "bpe",
    target_method: Annotated[TargetMethod, setting_option(TranslatorSettings, "target_method")] = "bpe",
    segmenter: SegmenterOfTargets = None,
    bpe_dropout: Annotated[float | None, setting_option(TranslatorSettings, "bpe_dropout")] = None,
    unigram_alpha: Annotated[float | None, setting_option(TranslatorSettings, "unigram_alpha")] = None,
    target_sampling: Annotated[float | None, setting_option(TranslatorSettings, "target_sampling")] = None,
    cuts: Cuts = None,
    cut_workers: CutWorkers = None,
    keep_cuts: KeepCuts = None,
    moses: Moses = None,
    bleu_tokenize: Annotated[BleuTokens | None, setting_option(TranslatorSettings, "bleu_tokenize")] = None,
    preset: options.Preset = "small",
    epochs: options.Epochs = None,
    steps: options.Steps = None,
    batch_tokens: Annotated[
        int | None, setting_option(TranslatorSettings, "batch", default=options.PRESET)
    ] = None,
    accumulate: options.Accumulate = None,
    learning_rate: options.LearningRate = None,
    warmup: options.Warmup = None,
    dropout: options.Dropout = None,
    label_smoothing: Annotated[float | None, setting_option(TranslatorSettings, "label_smoothing")] = None,
    seed: options.TrainingSeed = None,
    bf16: options.Bf16 = None,
    average: options.Average = None,
    patience: options.Patience = None,
    changes: options.Changes = [],  # noqa: B006
    device: options.Device = "auto",
    threads: options.Threads = None,
    load_workers: options.LoadWorkers = 1,
    save_minutes: options.SaveMinutes = 5.0,
) -> None:
    """Train a subword transformer on text segmented by any method; the best on development BLEU is kept.

    Started again with the same --out it resumes from its last save. Several processes:
    `torchrun --nproc-per-node 2 -m dpe train-translator ...`

    Example: `dpe train-translator --vocab vocab.model --source train.en --target train.fi
    --dev-source dev.en --dev-target dev.fi --source-method bpe-dropout --target-method dpe
    --segmenter segmenter --preset tiny --out translator`
    """
    from dpe.translator.training import train_translator as train

    vocabulary, source_vocabulary = options.vocabularies(vocab, source_vocab, target_vocab)
    train(
        out,
        vocabulary=vocabulary,
        source_vocabulary=source_vocabulary,
        source=source,
        target=target,
        dev_source=dev_source,
        dev_target=dev_target,
        segmenter=segmenter,
        cuts=cuts,
        settings=given_settings(context, TRANSLATOR_PRESETS, changes, batch=batch_tokens),
        session=training_session(context),
    )


def translate(
    context: typer.Context,
    *,
    translator: TranslatorDirectory,
    file: options.InputFile = None,
    out: options.OutFile = None,
    beam: Annotated[int, setting_option(Search, "beam")] = 5,
    length_penalty: Annotated[float, setting_option(Search, "length_penalty")] = 1.0,
    n_best: Annotated[
        int,
        typer.Option(min=1, help="Above 1: up to N lines for each: line number, score, translation (TSV)."),
    ] = 1,
    batch_tokens: Annotated[int, setting_option(Search, "batch_tokens")] = 1000,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Batches decoded in parallel. [default: one per core]")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Compute in 8 bits: faster, not quite equal.")] = False,
) -> None:
    """Translate text. One line in, one line out; an empty line stays empty.

    Example: `dpe translate --translator translator < test.en > test.fi`
    """
    from dpe.model.checkpoint import model_files
    from dpe.text.corpus import read_lines, write_lines
    from dpe.translator.translator import Translator

    progress: Progress = context.obj
    search = Search(beam=beam, length_penalty=length_penalty, n_best=n_best, batch_tokens=batch_tokens)
    refuse_overwriting(out, file, *model_files(translator))
    model = Translator.load(translator, int8=int8, threads=threads)

    def translated() -> Iterator[str]:
        found = model.stream(read_lines(file), search)
        for number, translations in enumerate(progress.track(found, "translating")):
            if n_best == 1:
                yield translations[0].text
            else:
                yield from (f"{number + 1}\t{score:.4f}\t{text}" for text, score in translations)

    write_lines(out, translated())


def export(
    context: typer.Context,
    *,
    translator: TranslatorDirectory,
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="A new directory.")],
    to: Annotated[Literal["ctranslate2"], typer.Option(help="The only format so far.")] = "ctranslate2",
    int8: Annotated[bool, typer.Option("--int8", help="Store 8-bit weights: a quarter of the size.")] = False,
) -> None:
    """Write a translator for use without dpe; README.md there has the few lines that translate a sentence.

    Example: `dpe export --translator translator --to ctranslate2 --int8 --out deployed`
    """
    from dpe.translator.translator import export_translator

    export_translator(translator, out, int8=int8)
    progress: Progress = context.obj
    progress.say(f"{out}: a {to} model, its vocabulary, and README.md")
