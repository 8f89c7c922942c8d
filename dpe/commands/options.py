"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

VocabularyFile = Annotated[Path, typer.Option("--vocab", metavar="FILE", help="A SentencePiece model.")]
InputFile = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="Text, plain, .gz or .xz; standard input if absent."),
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Where to write; standard output if absent."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU where there is one.")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
