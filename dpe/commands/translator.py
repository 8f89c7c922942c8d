"""Commands of the translator: train-translator, translate, export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from dpe.choices import SourceMethod, TargetMethod
from dpe.commands.options import (
    Accumulate,
    Average,
    Bf16,
    BleuTokenize,
    Device,
    DevTarget,
    Dropout,
    Epochs,
    InputFile,
    LearningRate,
    OutFile,
    Preset,
    SaveMinutes,
    Seed,
    Steps,
    Threads,
    TrainTarget,
    VocabularyFile,
    Warmup,
    model_files,
    refuse_idle,
    refuse_overwriting,
)
from dpe.commands.training import training_session
from dpe.progress import Progress

TranslatorDirectory = Annotated[
    Path, typer.Option("--translator", metavar="DIR", help="What train-translator made.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("train-translator")(train_translator)
    app.command("translate")(translate)
    app.command("export")(export)


def train_translator(
    context: typer.Context,
    *,
    vocab: VocabularyFile,
    source: Annotated[Path, typer.Option(metavar="FILE", help="Source side, plain, .gz or .xz.")],
    target: TrainTarget,
    dev_source: Annotated[Path, typer.Option(metavar="FILE", help="Source side.")],
    dev_target: DevTarget,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the translator goes; resumes what is there.")
    ],
    source_method: Annotated[SourceMethod, typer.Option(help="How the source is cut.")] = "bpe",
    target_method: Annotated[
        TargetMethod,
        typer.Option(
            help="How the target is cut. dpe: by the segmenter, anew for every cut of the source; "
            "dpe-fixed: by the segmenter, once, given the plain source."
        ),
    ] = "bpe",
    segmenter: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="What train-segmenter made, for dpe and dpe-fixed."),
    ] = None,
    bpe_dropout: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Of the cuts, where a method is bpe-dropout. [default: 0.05]"),
    ] = None,
    unigram_alpha: Annotated[
        float | None,
        typer.Option(min=0.0, help="Sharpness of the drawn cuts, where a method is unigram. [default: 0.2]"),
    ] = None,
    unigram_nbest: Annotated[
        int | None,
        typer.Option(
            help="Draw among this many best cuts, where a method is unigram; -1 is all. [default: -1]"
        ),
    ] = None,
    target_sampling: Annotated[
        float | None,
        typer.Option(metavar="T", help="dpe: draw cuts from the posterior at this temperature."),
    ] = None,
    cut_seed: Annotated[int, typer.Option(help="Of all random cuts; --seed is the network's.")] = 1,
    cuts: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the segmenter's cuts are kept; translators may share it. [default: OUT/cuts]",
        ),
    ] = None,
    cut_workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that cut. [default: one per core; 1 on a GPU]"),
    ] = None,
    moses: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="LANG LANG",
            help="The text is tokenised by Moses' rules for these languages; translate does it by itself.",
        ),
    ] = None,
    bleu_tokenize: BleuTokenize = "13a",
    preset: Preset = "small",
    epochs: Epochs = None,
    steps: Steps = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a side in a batch. [default: the preset's]")
    ] = None,
    accumulate: Accumulate = None,
    learning_rate: LearningRate = None,
    warmup: Warmup = None,
    dropout: Dropout = None,
    label_smoothing: Annotated[float, typer.Option(min=0.0, max=1.0, help="0 is none.")] = 0.1,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Leave lines of more pieces on a side out of training.")
    ] = 256,
    seed: Seed = 1,
    device: Device = "auto",
    threads: Threads = None,
    bf16: Bf16 = False,
    save_minutes: SaveMinutes = 5.0,
    average: Average = 1,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after N epochs without a better development BLEU.")
    ] = None,
) -> None:
    """Train a subword transformer on text cut by any method; the best on development BLEU is kept.

    Started again with the same --out it goes on from its last save. Many processes:
    `torchrun --nproc-per-node 2 -m dpe train-translator ...`

    Example: `dpe train-translator --vocab vocab.model --source train.en --target train.fi
    --dev-source dev.en --dev-target dev.fi --source-method bpe-dropout --target-method dpe
    --segmenter segmenter --preset tiny --out translator`
    """
    from dpe.evaluation.scores import dev_bleu
    from dpe.text.text_file import ParallelText
    from dpe.text.vocabulary import Vocabulary
    from dpe.training.settings import TRANSLATOR_PRESETS
    from dpe.translator.targets import SegmenterCutter
    from dpe.translator.training import TranslatorSettings
    from dpe.translator.training import train_translator as train

    own = {
        "bpe-dropout": {"--bpe-dropout": bpe_dropout},
        "unigram": {"--unigram-alpha": unigram_alpha, "--unigram-nbest": unigram_nbest},
    }
    for method, options in own.items():
        if method not in (source_method, target_method):
            refuse_idle(options, needs=f"--source-method or --target-method {method}")
    if segmenter is None:
        refuse_idle({"--cuts": cuts, "--cut-workers": cut_workers}, needs="the cuts of a --segmenter")
    defaults = TranslatorSettings
    chosen = TRANSLATOR_PRESETS[preset]
    settings = TranslatorSettings(
        network=chosen.network_with(dropout=dropout),
        training=chosen.training_with(
            accumulate=accumulate, learning_rate=learning_rate, warmup=warmup, seed=seed, bf16=bf16
        ),
        batch=batch_tokens or chosen.batch,
        label_smoothing=label_smoothing,
        source_method=source_method,
        target_method=target_method,
        bpe_dropout=defaults.bpe_dropout if bpe_dropout is None else bpe_dropout,
        unigram_alpha=defaults.unigram_alpha if unigram_alpha is None else unigram_alpha,
        unigram_nbest=defaults.unigram_nbest if unigram_nbest is None else unigram_nbest,
        target_sampling=target_sampling,
        cut_seed=cut_seed,
        max_tokens=max_tokens,
        moses=moses,
        bleu_tokenize=None if bleu_tokenize == "13a" else bleu_tokenize,
    )
    stopping = chosen.stopping(epochs=epochs, steps=steps, patience=patience, average=average)
    with training_session(
        context, out, stopping, device=device, threads=threads, save_minutes=save_minutes
    ) as session:
        cutter = segmenter and SegmenterCutter(
            segmenter,
            source=source,
            target=target,
            device=device,
            workers=cut_workers,
            progress=session.progress,
        )
        train(
            out,
            Vocabulary.load(vocab),
            ParallelText.open(source, target, cache=out / "cache"),
            ParallelText.open(dev_source, dev_target, cache=out / "cache"),
            settings=settings,
            session=session,
            bleu=dev_bleu(moses=moses, tokenize=settings.bleu_tokenize),
            cutter=cutter or None,
            cuts=cuts,
        )


def translate(
    context: typer.Context,
    *,
    translator: TranslatorDirectory,
    file: InputFile = None,
    out: OutFile = None,
    beam: Annotated[int, typer.Option(min=1, help="Hypotheses kept at every step; 1 is greedy.")] = 5,
    length_penalty: Annotated[
        float, typer.Option(help="Scores are divided by length to this power; above 1 prefers longer ones.")
    ] = 1.0,
    n_best: Annotated[
        int,
        typer.Option(min=1, help="Above 1: up to N lines for each: line number, score, translation (TSV)."),
    ] = 1,
    batch_tokens: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Source pieces decoded at once.")
    ] = 1000,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Batches decoded in parallel. [default: one per core]")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Compute in 8 bits: faster, not quite equal.")] = False,
) -> None:
    """Translate text. One line in, one line out; an empty line stays empty.

    Example: `dpe translate --translator translator < test.en > test.fi`
    """
    from dpe.text.corpus import read_lines, write_lines
    from dpe.translator.translator import Search, Translator

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
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new directory.")],
    to: Annotated[Literal["ctranslate2"], typer.Option(help="The only format so far.")] = "ctranslate2",
    int8: Annotated[bool, typer.Option("--int8", help="Store 8-bit weights: a quarter of the size.")] = False,
) -> None:
    """Write a translator for use without dpe; README.md there has the few lines that translate a sentence.

    Example: `dpe export --translator translator --to ctranslate2 --int8 --out deployed`
    """
    from dpe.translator.deployment import export_translator

    export_translator(translator, out, int8=int8)
    progress: Progress = context.obj
    progress.say(f"{out}: a {to} model, its vocabulary, and README.md")
