"""The explorer as a server on this machine, or in a notebook.

The server listens on the loopback interface only. It answers requests that name its own address as host, come from its
own pages, and carry the token that is part of the printed address. Thus no other user of the machine can see the page,
and no other page in the same browser can connect to it, even if that page's host name resolves to this machine. The
server reads no file that a page names.
"""

import asyncio
import errno
import logging
import secrets
import socket
import sys
import tempfile
import traceback
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.document import Document
from bokeh.io import output_notebook, show
from bokeh.server.auth_provider import NullAuth
from bokeh.server.server import Server
from tornado.web import HTTPError

from ggmflow.errors.argument import ArgumentError
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.explorer.late_surface import LateSurface
from ggmflow.explorer.prepared import Prepared, prepare
from ggmflow.explorer.session import make_document
from ggmflow.views.surface import evidence_surface

_HOSTS = ("localhost", "127.0.0.1")
_LOGGERS = ("bokeh.server.views.ws", "bokeh.server.protocol_handler", "tornado.application")


def application(prepared: Prepared) -> Application:
    """The explorer as a Bokeh application for a server of your own, which decides who has access.

    Parameters
    ----------
    prepared
        As `prepare` returns it.
    """
    return Application(FunctionHandler(lambda doc: make_document(doc, prepared)))


def _print_address(address: str) -> None:
    print(f"Explorer at {address}   Ctrl-C ends it.", flush=True)


def serve(
    model: GraphicalFlow,
    *,
    port: int = 5006,
    open_browser: bool = True,
    evidence: bool = True,
    in_background: bool = False,
    data_name: str | None = None,
    on_begin: Callable[[], None] = lambda: None,
    on_ready: Callable[[str], None] | None = _print_address,
) -> None:
    """Serve the explorer on this machine until Ctrl-C. Only those who know its whole address can open it.

    Parameters
    ----------
    model
        Fitted.
    port
        Port on localhost; 0 takes a free one.
    open_browser
        Whether to open a page.
    evidence
        Whether to compute the evidence surface; the first time for a number of variables this takes a while.
    in_background
        Whether pages open before the evidence is known, in the middle of the ranges. A page that has not been moved
        when it becomes known goes to its maximum.
    data_name
        Name of the data on the page, for example that of their file, which a model does not know.
    on_begin
        Called when the port is reserved and the computation begins.
    on_ready
        Called with the whole address when the server answers; prints it by default.

    Raises
    ------
    OSError
        If the port cannot be used, before anything is computed.
    """
    prepared: list[Prepared] = []
    with asyncio.Runner() as runner, _closed_pages_are_not_logged():
        server, address = runner.run(listen(lambda doc: make_document(doc, prepared[0]), port))
        try:
            on_begin()
            # Outside the event loop, where Ctrl-C would only act after the computation.
            found = prepare(model, evidence=evidence and not in_background, data_name=data_name)
            if evidence and in_background:
                found = found._replace(late=LateSurface(lambda: evidence_surface(model)))
            prepared.append(found)
            runner.run(_answer(server, address, open_browser, on_ready or (lambda address: None)))
        except KeyboardInterrupt:
            pass
        finally:
            runner.run(stop(server))


@contextmanager
def _closed_pages_are_not_logged() -> Iterator[None]:
    """Drop the tracebacks that Bokeh and Tornado log when a page is closed before it was answered: it is no error."""

    def is_error(record: logging.LogRecord) -> bool:
        error, frames = (record.exc_info or (None, None, None))[1:]
        if isinstance(error, AssertionError) and isinstance(frames, TracebackType):
            # Bokeh asserts that a session exists. Assertions that fail elsewhere are errors.
            return Path(traceback.extract_tb(frames)[-1].filename).parts[-3:-1] != ("bokeh", "server")
        # Bokeh logs this without an exception, so nothing but the text identifies it.
        return "connection was closed" not in record.getMessage()

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(is_error)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_error)


class _OwnAddress(NullAuth):
    """Accepts requests that name this server as host, come from its own pages, and carry the token.

    A foreign page can make its own host name resolve to this machine (DNS rebinding). A browser then treats both as one
    site, but still sends the name of the requested host and the origin of the requesting page. The token keeps out
    other users of this machine. It is part of the page's address, and Bokeh's script sends it when it opens the
    websocket.

    Parameters
    ----------
    own
        Host names of this server, with its port.
    token
        Required in every request.
    """

    def __init__(self, own: list[str], token: str):
        self._own, self._token = own, token
        super().__init__()

    @property
    def get_user(self) -> Callable[[Any], str]:
        """The function that Bokeh calls before it answers."""
        return self._check

    @property
    def login_url(self) -> str:
        """Required by Bokeh, but never used."""
        return "/"

    def _check(self, handler: Any) -> str:
        if handler.request.host not in self._own:
            raise HTTPError(403, "the request names another host")
        # Bokeh checks the origin of websockets too, but old versions do it wrongly, and a variable can switch it off.
        if handler.request.headers.get("Origin") not in (None, *(f"http://{host}" for host in self._own)):
            raise HTTPError(403, "the request comes from a page of another address")
        if not secrets.compare_digest(handler.get_argument("token", "").encode(), self._token.encode()):
            raise HTTPError(403, reason="Please open the whole address that was printed when the explorer started")
        return "the user"


async def listen(make: Callable[[Document], None], port: int) -> tuple[Server, str]:
    """Reserve a port.

    Parameters
    ----------
    make
        Fills the document of each new page.
    port
        Port on localhost; 0 takes a free one.

    Returns
    -------
    server : Server
        It answers after ``server.start()``, until `stop`.
    address : str
        The whole address, with its token.
    """
    if not 0 <= port < 2**16:
        raise ArgumentError("port", port, f"be a number from 0 to {2**16 - 1}")
    try:
        # If this failed within Bokeh, a socket would stay open; and for port 0 the number must be known.
        with socket.create_server(("127.0.0.1", port)) as free:
            port = free.getsockname()[1]
    except OSError as error:
        why = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
        raise OSError(error.errno, f"cannot use port {port}: {why}; choose another one") from None
    own = [f"{host}:{port}" for host in _HOSTS]
    options: dict[str, Any] = {"address": "localhost", "port": port, "allow_websocket_origin": own}
    token = secrets.token_hex(16)
    options["auth_provider"] = _OwnAddress(own, token)
    server = Server({"/": Application(FunctionHandler(make))}, **options)
    return server, f"http://localhost:{port}/?token={token}"


async def _answer(server: Server, address: str, open_browser: bool, on_ready: Callable[[str], None]) -> None:
    """Answer until cancelled."""
    server.start()
    on_ready(address)
    with tempfile.TemporaryDirectory() as directory:  # readable by this user only
        if open_browser:
            # The arguments of a browser are visible to other users: pass a file that forwards to the address.
            file = Path(directory) / "explorer.html"
            file.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="ascii")
            webbrowser.open(file.as_uri())
        await asyncio.Event().wait()


async def stop(server: Server) -> None:
    """Stop a server that `listen` returned."""
    server.unlisten()
    server.stop(wait=False)


def show_inline(
    model: GraphicalFlow,
    *,
    notebook_url: str = "http://localhost:8888",
    evidence: bool = True,
    data_name: str | None = None,
) -> None:
    """Show the explorer below the current cell of a notebook.

    Parameters
    ----------
    model
        Fitted.
    notebook_url
        Address of the notebook, as in the browser; only its pages may connect to the explorer. There is no token,
        because the notebook's page would not send it.
    evidence, data_name
        As in `serve`.
    """
    if "ipykernel" not in sys.modules:
        raise RuntimeError(
            "show_inline is for notebooks. Elsewhere `ggmflow.explorer.serve(model)` opens a page in the browser, as "
            "does the command `ggmflow explore`"
        )
    prepared = prepare(model, evidence=evidence, data_name=data_name)
    output_notebook(hide_banner=True)
    # By default Bokeh would listen on all network interfaces.
    show(application(prepared), notebook_url=notebook_url, address="localhost")
