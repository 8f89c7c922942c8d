"""How every command reads its arguments: one value for an option, -q and -v behind the command too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperOption

from dpe.errors import UserError
from dpe.progress import QUIET, VERBOSE, Progress

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter

_OF_ALL = ("quiet", "verbose")  # options of `dpe` itself


class Command(TyperCommand):
    """A command that refuses what click would pass over in silence."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Its own parameters, and those of `dpe` that may stand behind the command as well."""
        above = ctx.parent.command.params if ctx.parent else []
        return [*super().get_params(ctx), *(option for option in above if option.name in _OF_ALL)]

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        given = list(args)  # click takes the list apart
        rest = super().parse_args(ctx, args)
        self._refuse_repeated(ctx, given)
        self._refuse_stream_as_directory(ctx)
        self._refuse_file_as_directory(ctx)
        quiet, verbose = (ctx.params.pop(name, False) for name in _OF_ALL)
        if quiet or verbose:
            ctx.obj = Progress(QUIET if quiet else VERBOSE)
        return rest

    def _refuse_repeated(self, ctx: Context, args: list[str]) -> None:
        """Of an option that takes one value click would keep the last."""
        _, _, order = self.make_parser(ctx).parse_args(args)
        for option in order:
            takes_one = isinstance(option, TyperOption) and not option.multiple and not option.is_flag
            if takes_one and order.count(option) > 1:
                ctx.fail(f"{option.opts[0]} may be given only once")

    def _refuse_stream_as_directory(self, ctx: Context) -> None:
        for option in self.params:
            if option.metavar == "DIR" and str(ctx.params.get(option.name or "")) == "-":
                ctx.fail(f"{option.opts[0]} takes a directory, not -")

    def _refuse_file_as_directory(self, ctx: Context) -> None:
        """Before anything is made in it; directories that are read have complaints of their own."""
        takes_directory = any(option.name == "out" and option.metavar == "DIR" for option in self.params)
        out = ctx.params.get("out")
        if takes_directory and out is not None and out.exists() and not out.is_dir():
            raise UserError(f"{out} is a file; give a directory.")
