"""The page and its JSON endpoint as a web application.

It is made for one person's machine: no cookies, no state, nothing from the network. A page of another site
cannot ask it anything: there is no CORS, JSON is the only content type it reads, and a request whose Host is
not an address of this machine is refused (a name that its owner points at 127.0.0.1 is not one).
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpe import __version__
from dpe.errors import UserError
from dpe.explorer.answers import Explorer, TooLong
from dpe.explorer.messages import Answer, Problem, Question, Setup

STATIC = Path(__file__).parent / "static"
LONGEST_REQUEST = 100_000  # bytes: two texts of the longest kind, escaped, fit well
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The question is invalid."},
    413: {"model": Problem, "description": "A text is too long."},
}


def make_app(explorer: Explorer, *, host: str = "127.0.0.1") -> FastAPI:
    """The application; `host` is the address that it will be reached at."""
    # The interactive documentation of FastAPI loads its scripts from the network, so there is none.
    app = FastAPI(title="dpe explorer", version=__version__, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, host=host)
    app.add_exception_handler(RequestValidationError, _refuse_malformed)
    app.add_exception_handler(UserError, _refuse)
    _add_routes(app, explorer)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _add_routes(app: FastAPI, explorer: Explorer) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/api/setup")
    def setup() -> Setup:
        """The loaded segmenters, the limits, and pairs to start with."""
        return explorer.setup()

    @app.post("/api/segment", responses={**_PROBLEMS, 422: _PROBLEMS[400]})
    def segment(question: Question) -> Answer:
        """The segmentations of a target sentence given its source: best, n best, lattice, posterior."""
        return explorer.answer(question)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    return problem(str(error), 413 if isinstance(error, TooLong) else 400)


async def _refuse_malformed(request: Request, error: Exception) -> JSONResponse:
    """The first error of a request that is not a `Question`."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part != "body") or "The request"
    return problem(f"{field}: {first['msg']}.", 400)


def problem(sentence: str, status: int) -> JSONResponse:
    return JSONResponse(Problem(error=sentence).model_dump(), status_code=status)


class Guard:
    """Refuses requests with a foreign Host or a giant body, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, *, host: str) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(Headers(scope=scope), scope["method"])
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, headers: Headers, method: str) -> JSONResponse | None:
        if not is_own_name(headers.get("host", ""), self._host):
            return problem("This page answers at localhost and at its --host, not at this name.", 400)
        if method == "POST":
            length = headers.get("content-length", "")
            if not length.isdecimal():
                return problem("A request must say its length (Content-Length).", 411)
            if int(length) > LONGEST_REQUEST:
                return problem(f"The request has {int(length):,} bytes; give shorter texts.", 413)
        return None


def is_own_name(host_header: str, own: str) -> bool:
    """Whether a Host header names this machine: by number, as localhost, or as the address it listens at.

    A number is safe, because only names can be pointed at other people's machines. Ports do not matter.
    """
    name = host_header[1:].partition("]")[0] if host_header.startswith("[") else host_header.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() in ("localhost", own.lower())
    return True
