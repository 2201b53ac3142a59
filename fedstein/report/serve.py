"""The live page: a small web server for one person on one machine. Needs fedstein[ui]."""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from fedstein.errors import InputError
from fedstein.files import write_bytes
from fedstein.report.html import static
from fedstein.report.hub import RunHub

PORT, TRIED = 8017, 20
LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "fedstein_ui"
BEAT = 10.0  # seconds after which a quiet stream says that it is alive
FILES = {
    "echarts.min.js": "text/javascript",
    "charts.js": "text/javascript",
    "sections.js": "text/javascript",
    "page.js": "text/javascript",
    "page.css": "text/css",
    "live.css": "text/css",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
NO_TOKEN = "This page needs the address with the token that `fedstein ui` has printed."
OTHER_HOST = "This page answers only under the address that `fedstein ui` has printed."
Scope: TypeAlias = dict[str, Any]
Channel: TypeAlias = Callable[..., Any]


class Guard:
    """Admits requests with the token and a known host name. The check of the name keeps pages of other sites out."""

    def __init__(self, app: Any, token: str, hosts: tuple[str, ...]):
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Channel, send: Channel) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse

        request = Request(scope)
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname
        given = request.query_params.get("token") or request.cookies.get(COOKIE) or ""
        refused = None
        if "*" not in self.hosts and name not in self.hosts:
            refused = OTHER_HOST
        elif not secrets.compare_digest(given.encode(), self.token.encode()):
            refused = NO_TOKEN
        if refused:
            await PlainTextResponse(refused, 403, headers=HEADERS)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def build_app(root: Path, token: str, hosts: tuple[str, ...] = LOOPBACK) -> Any:
    """Build the application.

    Args:
        root: The folder below which runs are followed. It need not exist yet.
        token: What a visitor must know.
        hosts: The host names under which it answers; "*" for any.

    Returns:
        An ASGI application.

    Raises:
        InputError: Starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError:
        raise InputError("fedstein ui needs Starlette and uvicorn: pip install 'fedstein[ui]'") from None
    import asyncio

    hub = RunHub(root)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(hub.follow())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def index(_: Request) -> Response:
        response = HTMLResponse(static("ui.html").replace("{folder}", _text(root)), headers=HEADERS)
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return response

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            return PlainTextResponse("not found", 404, headers=HEADERS)
        caching = {"cache-control": "max-age=3600"} if name == "echarts.min.js" else {"cache-control": "no-cache"}
        return Response(static(name), media_type=FILES[name], headers=HEADERS | caching)

    async def runs(_: Request) -> Response:
        return JSONResponse(hub.listed(), headers=HEADERS)

    async def views(request: Request) -> Response:
        chosen = request.query_params.getlist("run")
        found = await asyncio.to_thread(hub.views, chosen)
        return JSONResponse(found, headers=HEADERS)

    async def about(request: Request) -> Response:
        found = await asyncio.to_thread(hub.details, request.query_params.get("run", ""))
        if found is None:
            return JSONResponse({"error": "There is no such run any more."}, 404, headers=HEADERS)
        return JSONResponse(found, headers=HEADERS)

    async def news(_: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            seen = 0
            while True:
                entry = hub.listed(seen)
                quiet = entry["version"] == seen and seen
                seen = entry["version"]
                yield ": alive\n\n" if quiet else f"data: {json.dumps(entry)}\n\n"
                await hub.wait(seen, BEAT)

        return StreamingResponse(
            stream(), media_type="text/event-stream", headers=HEADERS | {"cache-control": "no-store"}
        )

    routes = [
        Route("/", index),
        Route("/static/{name}", file),
        Route("/api/runs", runs),
        Route("/api/views", views),
        Route("/api/details", about),
        Route("/api/events", news),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), token, hosts)


def serve(root: Path, host: str, port: int | None, on_start: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C.

    Args:
        root: The folder below which runs are followed.
        host: The address to listen on.
        port: The port, or None for 8017 or the next one that is free.
        on_start: Gets the address with the token as soon as the page can be opened.

    Raises:
        InputError: The port is taken, or Starlette and uvicorn are not installed.
    """
    if root.exists() and not root.is_dir():
        raise InputError(f"expected a folder of runs, got the file {root}; name the folder that holds the run folders")
    try:
        import uvicorn
    except ImportError:
        raise InputError("fedstein ui needs Starlette and uvicorn: pip install 'fedstein[ui]'") from None
    token = kept_token()
    hosts = LOOPBACK if host in LOOPBACK else (*LOOPBACK, host) if host not in ("0.0.0.0", "::") else ("*",)
    config = uvicorn.Config(build_app(root, token, hosts), log_level="warning", timeout_graceful_shutdown=1)
    with _listen(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        on_start(f"http://{shown}:{listening.getsockname()[1]}/?token={token}")
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(PORT, PORT + TRIED) if port is None else [port]:
        listening = socket.socket(family, socket.SOCK_STREAM)
        if os.name != "nt":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
        except OSError as error:
            listening.close()
            reason = error.strerror or str(error)
            continue
        listening.listen(64)
        return listening
    wanted = f"port {port}" if port is not None else f"one of the ports {PORT} to {PORT + TRIED - 1}"
    raise InputError(f"expected {wanted} of {host} to be free, got: {reason.lower()}; name another with --port")


def kept_token() -> str:
    """The token of this user, the same at every start, so that an open page survives a restart of the server.

    Returns:
        What is in a file that only the user may read, or a new token if no such file can be kept.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "fedstein" / "ui-token"
    with suppress(OSError, UnicodeDecodeError):
        private = os.name == "nt" or stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        kept = path.read_text("ascii").strip()
        if private and len(kept) >= 32:
            return kept
    token = secrets.token_urlsafe(32)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        before = os.umask(0o077)
        try:
            write_bytes(path, token.encode())
        finally:
            os.umask(before)
    return token


def token_of(address: str) -> str:
    """The token in an address."""
    return parse_qs(urlsplit(address).query)["token"][0]


def _text(root: Path) -> str:
    from html import escape

    return escape(str(root))
