"""The command line: `dpe COMMAND`. Assembles the commands and turns errors into sentences."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dpe import __version__
from dpe.choices import RAY_HERE
from dpe.commands import evaluation, experiment, explore, segmenter, streams, text, translator
from dpe.errors import UserError
from dpe.progress import NORMAL, QUIET, VERBOSE, Progress

app = typer.Typer(
    name="dpe",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order in which one uses them; the name of a command is its function's, with hyphens.
COMMANDS = (
    *(text.demo_corpus, text.clean, text.vocab, text.pieces, text.encode, text.decode),
    *(segmenter.train_segmenter, segmenter.segment, segmenter.score, segmenter.distill, segmenter.join),
    streams.cut_pairs,
    *(translator.train_translator, translator.translate, translator.export),
    *(text.noise, evaluation.evaluate, evaluation.compare, evaluation.morphology, evaluation.diagnose),
    *(experiment.run, experiment.table, experiment.show, experiment.report),
    explore.explore,
)
for command in COMMANDS:
    app.command()(command)

_STOPPED = 130
_ANYWHERE = ("-q", "--quiet", "-v", "--verbose")  # options of `dpe` that may stand behind the command too


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dpe {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Dynamic Programming Encoding: exact latent subword segmentation for machine translation.

    Results go to standard output or --out; progress goes to standard error.
    """
    context.obj = Progress(QUIET if quiet else VERBOSE if verbose else NORMAL)


def run(arguments: list[str]) -> int:
    """Run one command and return the exit code."""
    first = [one for one in arguments if one in _ANYWHERE]
    ordered = [*first, *_with_address([one for one in arguments if one not in _ANYWHERE])]
    try:
        code = app(ordered or ["--help"], standalone_mode=False, prog_name="dpe")
        sys.stdout.flush()
        if code == _STOPPED:  # Typer's code for an interrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped.", code=_STOPPED)
    except (BrokenPipeError, SystemExit) as ended:
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone, as `head` does
        return 141
    except OSError as error:  # of standard output: other files have their own sentences
        return _fail(f"{error.filename or 'standard output'}: {error.strerror}.")
    except Exception as error:
        if not hasattr(error, "format_message"):  # which Typer's usage errors have
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "dpe")
        return _fail(f"{error.format_message().removesuffix('.')}. See '{command} --help'.")


def _with_address(arguments: list[str]) -> list[str]:
    """`--ray` alone means a cluster of this machine; Typer has no options whose value may be absent."""
    words = []
    for one, after in zip(arguments, [*arguments[1:], "-"], strict=True):
        words += [one, RAY_HERE] if one == "--ray" and after.startswith("-") else [one]
    return words


def _fail(sentence: str, *, code: int = 2) -> int:
    print(f"dpe: {sentence}", file=sys.stderr)
    return code
