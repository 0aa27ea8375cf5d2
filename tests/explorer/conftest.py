"""Servers of the explorer, with few variables and with many, and a browser's page on which no name may be executed."""

import asyncio
import threading

import numpy as np
import pytest

from ggmflow.explorer import make_document, prepare
from ggmflow.explorer.server import listen, stop
from ggmflow.model.conditions import Choice
from ggmflow.views.surface import Surface
from tests.support.explorer_page import NAMES, QUERY, fitted


@pytest.fixture(scope="module")
def start_server():
    """A function that serves prepared models; the servers are stopped at the end."""
    running = []

    def start(prepared):
        ready, address = threading.Event(), []

        async def main():
            server, url = await listen(lambda doc: make_document(doc, prepared), 0)
            server.start()
            stopped = asyncio.Event()
            address.append(url)
            running.append((asyncio.get_running_loop(), stopped, thread))
            ready.set()
            await stopped.wait()
            await stop(server)

        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        assert ready.wait(20)
        return address[0]

    yield start
    for loop, stopped, thread in running:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(20)


@pytest.fixture(scope="module")
def small(start_server):
    """d = 5 with names that contain HTML and TeX; an evidence surface with a known maximum."""
    model = fitted(NAMES, 60)
    lam, q = np.geomspace(*model.lam_range_, 9), np.linspace(*model.q_range_, 5)
    surface = Surface(lam, q, -((np.log(lam / lam[4])[:, None]) ** 2) - (q - q[2]) ** 2, Choice(lam[4], q[2], ()))
    prepared = prepare(model, evidence=False)._replace(surface=surface)
    return model, start_server(prepared)


@pytest.fixture(scope="module")
def blanket(start_server):
    """Six query variables among 300."""
    model = fitted([*QUERY, *(f"gene {k}" for k in range(294))], 80, query=QUERY, temperature=1.0, lam=(2.0, 40.0))
    return model, start_server(prepare(model, evidence=False))


@pytest.fixture
def page(page):
    """Any dialog means that a name was executed."""
    page.on("dialog", lambda dialog: pytest.fail(f"a name was executed: {dialog.message}"))
    return page
