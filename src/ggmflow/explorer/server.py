"""The explorer as a server on this machine, or in a notebook.

It answers on the loopback interface only, to requests that call it by its own address and bring the token that is part
of the address it tells, and only to pages of that address: no other user of the machine can look, and no other page in
the same browser can talk to it, even if its name leads here. It reads no file that a page names.
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

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.explorer.session import Prepared, make_document, prepare

_HOSTS = ("localhost", "127.0.0.1")
_TALKATIVE = ("bokeh.server.views.ws", "bokeh.server.protocol_handler", "tornado.application")


def application(prepared: Prepared) -> Application:
    """The explorer as a Bokeh application, to be put into a server of your own, which decides who may look.

    Parameters
    ----------
    prepared
        What `prepare` gave.
    """
    return Application(FunctionHandler(lambda doc: make_document(doc, prepared)))


def _tell(address: str) -> None:
    print(f"Explorer at {address}   Ctrl-C ends it.", flush=True)


def serve(
    model: GraphicalFlow,
    *,
    port: int = 5006,
    open_browser: bool = True,
    evidence: bool = True,
    data_name: str | None = None,
    on_begin: Callable[[], None] = lambda: None,
    on_ready: Callable[[str], None] | None = _tell,
) -> None:
    """Serve the explorer on this machine until Ctrl-C, to those who know its whole address.

    Parameters
    ----------
    model
        Fitted.
    port
        Of localhost; 0 takes one that is free.
    open_browser
        Whether to open a page.
    evidence
        Whether to compute the evidence surface first; the first time for a number of variables that takes a while.
    data_name
        What the page calls the data, for example the name of their file; a model does not know it.
    on_begin
        Called when the port is ours and the computing begins.
    on_ready
        Called with the whole address when the server answers; by default it is printed.

    Raises
    ------
    OSError
        If the port cannot be used, before anything is computed.
    """
    known: list[Prepared] = []
    with asyncio.Runner() as runner, _closed_pages_are_no_news():
        server, address = runner.run(_listen(lambda doc: make_document(doc, known[0]), port))
        try:
            on_begin()
            # Not within the loop: there Ctrl-C would have to wait for its end.
            known.append(prepare(model, evidence=evidence, data_name=data_name))
            runner.run(_answer(server, address, open_browser, on_ready or (lambda address: None)))
        except KeyboardInterrupt:
            pass
        finally:
            runner.run(_stop(server))


@contextmanager
def _closed_pages_are_no_news() -> Iterator[None]:
    """Bokeh and Tornado log tracebacks when a page is closed while an answer is under way; that is no error."""

    def worth_telling(record: logging.LogRecord) -> bool:
        error, frames = (record.exc_info or (None, None, None))[1:]
        if isinstance(error, AssertionError) and isinstance(frames, TracebackType):
            # Bokeh asserts that a session is there; ours fail with other errors, and in other files.
            return Path(traceback.extract_tb(frames)[-1].filename).parts[-3:-1] != ("bokeh", "server")
        return "connection was closed" not in record.getMessage()

    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    for logger in loggers:
        logger.addFilter(worth_telling)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(worth_telling)


class _OwnAddress(NullAuth):
    """Lets everybody in who asks for this server by its own name, from its own pages, and knows the token.

    A page elsewhere can make its own name lead to this machine; then a browser takes both for one site, but still says
    which name it asked for, and which page asks. Other users of this machine are kept out by the token. The page's
    address holds it, and Bokeh's script hands it on when it opens the websocket.

    Parameters
    ----------
    own
        Names of this server, with its port.
    token
        What every request must bring.
    """

    def __init__(self, own: list[str], token: str):
        self._own, self._token = own, token
        super().__init__()

    @property
    def get_user(self) -> Callable[[Any], str]:
        """What Bokeh asks before it answers."""
        return self._check

    @property
    def login_url(self) -> str:
        """Bokeh wants one, though nobody is ever sent there."""
        return "/"

    def _check(self, handler: Any) -> str:
        if handler.request.host not in self._own:
            raise HTTPError(403, "this server is called by another name")
        # Bokeh looks at the origin of websockets too, but as old versions and environment variables would have it.
        if handler.request.headers.get("Origin") not in (None, *(f"http://{host}" for host in self._own)):
            raise HTTPError(403, "a page of another address asks")
        if not secrets.compare_digest(handler.get_argument("token", "").encode(), self._token.encode()):
            raise HTTPError(403, reason="Please open the whole address that was printed when the explorer started")
        return "the user"


async def _listen(make: Callable[[Document], None], port: int) -> tuple[Server, str]:
    """A server that has its port but does not answer yet, and its whole address."""
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be a number from 0 to {2**16 - 1}, got {port}")
    try:
        # Bokeh would leave a socket open where this fails; and of port 0 it must be known which one it is.
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
    with tempfile.TemporaryDirectory() as place:  # for this user alone
        if open_browser:
            # Other users see in the list of processes what a browser is started with: a file that leads to the address.
            file = Path(place) / "explorer.html"
            file.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="ascii")
            webbrowser.open(file.as_uri())
        await asyncio.Event().wait()


async def _stop(server: Server) -> None:
    server.unlisten()
    server.stop(wait=False)


def show_inline(
    model: GraphicalFlow,
    *,
    notebook_url: str = "http://localhost:8888",
    evidence: bool = True,
    data_name: str | None = None,
) -> None:
    """Show the explorer below the present cell of a notebook.

    Parameters
    ----------
    model
        Fitted.
    notebook_url
        Address of the notebook, as in the browser; only its pages may talk to the explorer. There is no token: the
        notebook's page would not bring it.
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
    # Without an address Bokeh would listen to the whole network.
    show(application(prepared), notebook_url=notebook_url, address="localhost")
