"""The command line: `dpe COMMAND`. Assembles the commands and turns errors into sentences."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dpe.commands import evaluation, experiment, explore, segmenter, text, translator
from dpe.commands.command import Command
from dpe.errors import UserError
from dpe.progress import NORMAL, QUIET, VERBOSE, Progress
from dpe.version import __version__

app = typer.Typer(
    name="dpe",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
text.register(app)
segmenter.register(app)
translator.register(app)
evaluation.register(app)
experiment.register(app)
explore.register(app)
for registered in app.registered_commands:
    registered.cls = Command

# Typer brings its own copy of click since 0.27 or so; its public BadParameter leads to the right classes.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
_ClickException: type[Exception] = _UsageError.__bases__[0]
_STOPPED = 130


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dpe {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")] = False,
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
    try:
        code = app(arguments or ["--help"], standalone_mode=False, prog_name="dpe")
        sys.stdout.flush()
        if code == _STOPPED:  # what Typer makes of an interrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _fail(str(error))
    except _ClickException as error:
        return _fail(_usage_sentence(error))
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped.", code=_STOPPED)
    except (BrokenPipeError, SystemExit) as ended:
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _reader_gone()
    except OSError as error:  # of standard output: files are spoken of where they are written
        return _fail(f"{error.filename or 'standard output'}: {error.strerror}.")


def _reader_gone() -> int:
    """The reader of our output has gone, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _usage_sentence(error: Exception) -> str:
    """Click's complaint about the arguments, and where to read about them."""
    sentence = str(error.format_message())  # type: ignore[attr-defined]  # every ClickException has it
    context = getattr(error, "ctx", None)
    return f"{sentence.removesuffix('.')}. See '{context.command_path if context else 'dpe'} --help'."


def _fail(sentence: str, *, code: int = 2) -> int:
    print(f"dpe: {sentence}", file=sys.stderr)
    return code
