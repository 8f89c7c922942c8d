"""The command `explore`: a web page about one's segmenters."""

from __future__ import annotations

import socket
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpe.commands.options import Device
from dpe.errors import UserError
from dpe.progress import Progress

if TYPE_CHECKING:
    pass

_EXAMPLES = 12


def explore(
    context: typer.Context,
    *,
    segmenter: Annotated[
        list[Path],
        typer.Option(
            "--segmenter", metavar="DIR", help="A directory that train-segmenter made; several to compare."
        ),
    ],
    examples: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Pairs to pick from: lines of source, tab, target; the first {_EXAMPLES} are taken. "
            "[default: of the built-in corpus]",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; another one opens the page to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    device: Device = "auto",
) -> None:
    """Look at segmentations in a web page: lattices, probabilities, BPE or unigram beside them.

    Needs the extra `explore`: `pip install '.[explore]'` in a checkout. Stop it with Ctrl-C. The page asks
    POST /api/segment, which /openapi.json describes, so that a program can ask it too.

    Example: `dpe explore --segmenter segmenter --port 8000`
    """
    try:
        import uvicorn

        from dpe.explorer.answers import Explorer
        from dpe.explorer.messages import Question
        from dpe.explorer.server import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dpe"):
            raise
        raise UserError("The explorer needs its extra packages: pip install '.[explore]'") from error
    from dpe.demo.grammar import generate
    from dpe.segmenter.segmenter import Segmenter
    from dpe.text.corpus import Pair, read_tsv

    progress: Progress = context.obj
    names = names_of(segmenter)
    loaded = {name: Segmenter.load(path, device=device) for name, path in zip(names, segmenter, strict=True)}
    builtin = (Pair(pair.source, pair.target) for pair in generate(_EXAMPLES, seed=3))
    pairs = read_tsv(examples) if examples else builtin
    explorer = Explorer(loaded, list(islice(pairs, _EXAMPLES)))
    for info in explorer.setup().segmenters:  # the first answer of a process takes several times as long
        explorer.answer(Question(segmenter=info.name, source="a" if info.has_source else None, target="a"))
    with listen(host, port) as listener:
        progress.say(f"The page is at {address(listener)} (Ctrl-C stops it).")
        server = uvicorn.Server(uvicorn.Config(make_app(explorer, host=host), log_level="warning"))
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def names_of(directories: list[Path]) -> list[str]:
    """Short names of directories: their last parts, or all of the path where those are alike."""
    lasts = [path.resolve().name for path in directories]
    names = [
        last if lasts.count(last) == 1 else str(path) for last, path in zip(lasts, directories, strict=True)
    ]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"The segmenter {name} is given twice; give each once.")
    return names


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections at this address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(
            f"Cannot listen at {host}, port {port}: {error.strerror}; choose another --port or --host."
        ) from error


def address(listener: socket.socket) -> str:
    """Where a browser finds the page."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
