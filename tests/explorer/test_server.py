"""The server: its port, the requests that it answers, its address, and its end."""

import re
import signal
import socket
import stat
import subprocess
import sys
import types
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jax
import numpy as np
import pytest
from bokeh.document import Document
from bokeh.io.state import curstate
from bokeh.server.views.ws import WSHandler
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.ioloop import IOLoop
from tornado.websocket import websocket_connect

from ggmflow.explorer import prepare, serve, server
from ggmflow.explorer.session import Session
from tests.support.models import TABLE, quick


def test_a_port_in_use_is_an_error_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr(server, "prepare", lambda *args, **kwargs: pytest.fail("the page was prepared"))
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot use port {port}: another program uses it; choose another"):
            serve(None, port=port, open_browser=False)


def test_a_number_that_is_not_a_port():
    with pytest.raises(ValueError, match="port must be a number from 0 to 65535, got 70000"):
        serve(None, port=70000, open_browser=False)


def at(address, path="", *, scheme="http", token=True):
    """Another path of the same server, with or without the token, and the server's port."""
    own = urlsplit(address)
    query = own.query if token else ""
    return f"{scheme}://{own.netloc}/{path}?{query}", own.port


def ask(make_request):
    """Answers of a running server to the requests that `make_request` makes from its whole address."""

    async def answers():
        running, address = await server.listen(lambda doc: None, 0)
        running.start()
        try:
            return [await AsyncHTTPClient().fetch(each, raise_error=False) for each in make_request(address)]
        finally:
            await server.stop(running)

    return IOLoop().run_sync(answers, timeout=20)


def open_websockets(make_request):
    """The first message of a running server to each websocket; None if the server closes the connection."""

    async def messages():
        running, address = await server.listen(lambda doc: None, 0)
        running.start()
        found = []
        try:
            for request in make_request(address):
                # As the script of a page, with the token of a session.
                connection = await websocket_connect(request, subprotocols=["bokeh", _token(running)])
                found.append(await connection.read_message())
                connection.close()
            return found
        finally:
            await server.stop(running)

    return IOLoop().run_sync(messages, timeout=20)


ORIGINS = ["http://evil.example", "http://localhost:1", "http://localhost.evil.example:{port}", "null"]


def of_origin(origin, path="", scheme="http"):
    def make_request(address):
        url, port = at(address, path, scheme=scheme)
        return [HTTPRequest(url, headers={"Origin": origin.format(port=port)})]

    return make_request


@pytest.mark.parametrize("origin", ORIGINS)
def test_websockets_of_other_pages_are_rejected(origin):
    with pytest.raises(HTTPClientError, match="403"):
        open_websockets(of_origin(origin, "ws", "ws"))


@pytest.mark.parametrize("origin", [*ORIGINS, "https://localhost:{port}"])
def test_the_whole_origin_is_compared_even_if_bokeh_accepts_it(origin, monkeypatch):
    """Bokeh before 3.8.2 accepts localhost.evil.example as localhost, and a variable can allow every origin."""
    monkeypatch.setattr(WSHandler, "check_origin", lambda self, origin: True)
    assert open_websockets(of_origin(origin, "ws", "ws")) == [None]
    assert [each.code for each in ask(of_origin(origin))] == [403]


@pytest.mark.parametrize("origin", ["http://localhost:{port}", "http://127.0.0.1:{port}"])
def test_pages_of_the_server_are_answered(origin):
    assert "ACK" in open_websockets(of_origin(origin, "ws", "ws"))[0]
    assert [each.code for each in ask(of_origin(origin))] == [200]


@pytest.mark.parametrize(
    "host, path, answer",
    [
        (None, "", 200),
        ("127.0.0.1:{port}", "", 200),
        ("evil.example:{port}", "", 403),
        ("evil.example", "", 403),
        ("localhost.evil.example:{port}", "", 403),
        ("localhost:1", "", 403),
        ("evil.example:{port}", "autoload.js", 403),
        ("evil.example:{port}", "metadata", 403),
    ],
)
def test_requests_that_name_another_host_are_not_answered(host, path, answer):
    """DNS rebinding: a foreign page whose host name resolves to this machine counts as the same site."""

    def make_request(address):
        url, port = at(address, path)
        return [HTTPRequest(url, headers={} if host is None else {"Host": host.format(port=port)})]

    assert [each.code for each in ask(make_request)] == [answer]


def test_a_websocket_needs_the_right_host_and_origin():
    def make_requests(address):
        url, port = at(address, "ws", scheme="ws")
        for host in ("localhost", "evil.example"):
            yield HTTPRequest(url, headers={"Origin": f"http://localhost:{port}", "Host": f"{host}:{port}"})

    own, foreign = open_websockets(make_requests)
    assert "ACK" in own and foreign is None  # the second was closed without a message


@pytest.mark.parametrize("token", ["", "token=", "token=0123", "token=%C3%A4", "token=%FF", "bokeh-token=0123"])
def test_requests_without_the_token_are_rejected_with_a_hint(token):
    paths = ["", "autoload.js", "metadata"]
    found = ask(lambda address: [at(address, path, token=False)[0] + token for path in paths])
    assert [each.code for each in found] == [400 if "FF" in token else 403] * len(paths)
    if "bokeh" not in token and "FF" not in token:
        assert all(b"open the whole address that was printed" in each.body for each in found)
    assert open_websockets(lambda address: [at(address, "ws", scheme="ws", token=False)[0] + token]) == [None]


def test_every_server_has_its_own_token():
    tokens = []
    for _ in range(2):
        ask(lambda address: tokens.append(urlsplit(address).query) or [])
    assert tokens[0] != tokens[1] and all(re.fullmatch("token=[0-9a-f]{32}", each) for each in tokens)


def test_a_browser_is_started_with_a_file_that_forwards_to_the_address(monkeypatch):
    """Other users can see the arguments of a process, but cannot read the file."""
    started, ready = [], []

    class Ended(Exception):
        pass

    def start(address):
        file = Path(unquote(urlsplit(address).path))
        started.append((address, file.read_text(), stat.S_IMODE(file.parent.stat().st_mode)))
        raise Ended

    monkeypatch.setattr(server, "prepare", lambda model, evidence, data_name: None)
    monkeypatch.setattr(server.webbrowser, "open", start)
    with pytest.raises(Ended):
        serve(None, port=0, on_ready=ready.append)
    ((address, content, mode),), (whole,) = started, ready
    assert address.startswith("file:") and urlsplit(whole).query not in address
    assert f"url={whole}" in content and mode == 0o700


@pytest.mark.parametrize("on_ready", [print, None])
def test_a_browser_is_not_needed(monkeypatch, on_ready):
    async def end(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "prepare", lambda model, evidence, data_name: None)
    monkeypatch.setattr(server.webbrowser, "open", lambda address: pytest.fail("opened"))
    monkeypatch.setattr(server.asyncio.Event, "wait", end)
    serve(None, port=0, open_browser=False, on_ready=on_ready)


def test_the_address_is_printed_by_default(monkeypatch, capsys):
    async def end(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "prepare", lambda model, evidence, data_name: None)
    monkeypatch.setattr(server.asyncio.Event, "wait", end)
    serve(None, port=0, open_browser=False)
    assert re.match(r"Explorer at http://localhost:\d+/\?token=[0-9a-f]{32}   Ctrl-C ends it", capsys.readouterr().out)


def test_no_request_reads_a_file(tmp_path):
    """Neither by the path of the address nor by an argument of the request."""
    (tmp_path / "secret.txt").write_text("a secret")
    up, target = "../" * 12, str(tmp_path / "secret.txt").lstrip("/")
    paths = [f"{up}{target}", f"static/{up}{target}", f"static//{target}", f"static/%2e%2e/%2e%2e/{target}"]
    more = [f"file={up}{target}", f"bokeh-session-id={up}{target}"]

    def make_request(address):
        yield from (at(address, path)[0] for path in (*paths, f"file:///{target}"))
        yield from (f"{address}&{each}" for each in more)

    found = [each.body or b"" for each in ask(make_request)]
    assert len(found) == 7 and not any(b"a secret" in body for body in found)


def _token(running):
    from bokeh.util.token import generate_jwt_token, generate_session_id

    return generate_jwt_token(generate_session_id())


def test_the_server_listens_on_this_machine_only():
    async def addresses():
        running, _ = await server.listen(lambda doc: None, 0)
        found = [each.getsockname()[0] for each in running._http._sockets.values()]
        await server.stop(running)
        return found

    assert set(IOLoop().run_sync(addresses)) <= {"127.0.0.1", "::1"}


def test_in_a_notebook_the_server_listens_on_this_machine_only(monkeypatch, untrained):
    """Through Bokeh's `show`; only the output for the notebook is replaced."""
    from bokeh.io import notebook

    shown = []
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setattr(notebook, "publish_display_data", lambda data, *args, **kwargs: shown.append(data))
    model = quick().fit(TABLE)

    async def addresses():
        server.show_inline(model, notebook_url="http://localhost:8888", evidence=False)
        running = list(curstate().uuid_to_server.values())
        found = [each.getsockname()[0] for one in running for each in one._http._sockets.values()]
        for one in running:
            await server.stop(one)
        return found

    found = IOLoop().run_sync(addresses)
    assert found and set(found) <= {"127.0.0.1", "::1"}
    assert any("localhost" in str(each) for each in shown)


@pytest.mark.slow
def test_ctrl_c_ends_the_server_cleanly(tmp_path, untrained):
    quick().fit(TABLE).save(tmp_path / "m.ggmflow")
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import ggmflow as gf
from ggmflow.explorer import serve
model = gf.GraphicalFlow.load({str(tmp_path / "m.ggmflow")!r})
serve(model, port=0, open_browser=False, evidence=False, on_ready=lambda address: print(address, flush=True))
print("ended", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("http://localhost:")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == "ended\n" and process.returncode == 0, err
    assert "Traceback" not in err


def test_show_inline_outside_a_notebook_names_the_alternative(untrained):
    with pytest.raises(RuntimeError, match=r"explorer\.serve"):
        server.show_inline(quick().fit(TABLE))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
@pytest.mark.parametrize("more", [{"architecture": "paper", "temperature": (0.3, 1.0)}, {"lam": 2.0, "q": 1.0}])
def test_two_temperatures_and_ranges_of_one_value(untrained, more):
    page = Session(Document(), prepare(quick(**more).fit(TABLE), evidence=False))
    slider = page.controls.temperature
    slider.value = slider.start + 0.1 * (slider.end - slider.start)
    page.redraw()
    lam, q, temperature = page.state.condition
    assert temperature == (0.3 if "architecture" in more else page.view.temperature)
    assert (lam, q) == (2.0, 1.0 if "q" in more else 0.75)


@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
@pytest.mark.parametrize("temperature", [(0.012345678, 0.98765432), (0.01, 1.0), 0.4567891234])
def test_the_line_of_python_gives_the_numbers_shown(untrained, temperature):
    """At both ends of ranges that need many digits, and in between."""
    ranges = {"lam": "auto", "q": (0.2543216789, 1.2345678912), "temperature": temperature}
    model = quick(**ranges).fit(TABLE)
    page = Session(Document(), prepare(model, evidence=False))
    for ends in ("value", "start", "end"):
        for slider in page.controls.sliders:
            slider.value = getattr(slider, ends)
        page.redraw()
        line = re.search(r"<code>(.*)</code>", page.panels.texts["trust"].text)[1]
        post = eval(line, {"model": model})
        i, j = page.view.pairs["i"], page.view.pairs["j"]
        np.testing.assert_array_equal(post.association()[i, j], page.view.pairs["association"])
        assert post.temperature == pytest.approx(page.view.temperature) and post.num_draws == 500
        if ends != "value":
            shown = np.array([post.lam, post.q, post.temperature])
            end = [getattr(model, f"{name}_range_")[ends == "end"] for name in ranges]
            np.testing.assert_allclose(shown, end, rtol=6e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")
def test_moves_do_not_compile(untrained, compilations):
    model = quick(temperature=(0.0001, 1.0)).fit(TABLE)
    prepared = prepare(model, evidence=False)
    jax.clear_caches()  # programs that other tests have compiled do not count
    prepare(model, evidence=False)
    compilations.clear()
    page = Session(Document(), prepared)
    for slider in page.controls.sliders:
        for share in (0.0, 1.0, 0.5):
            slider.value = slider.start + share * (slider.end - slider.start)
            page.redraw()
            page.redraw(at_rest=True)
    assert not [name for name in compilations if "draw" in name], compilations
