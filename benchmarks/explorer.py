"""Time that the explorer takes to redraw while a slider moves: ``python -m benchmarks.explorer``.

The time of a move in the server is that from the new (λ, q) to the message for the browser: draws of the flow, weights,
intervals, edges by the default rule, and the data of all panels, without a connection. The time in the browser is that
from a key press on the slider of λ to the first frame in which all panels are painted, through the server and its
websocket, in Chromium without a graphics card. Training changes neither, so the flow is trained only briefly.
"""

import argparse
import asyncio
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from bokeh.document import Document
from playwright.sync_api import Page, sync_playwright

import ggmflow as gf
from ggmflow.explorer import Prepared, make_document, prepare
from ggmflow.explorer.server import listen, stop
from ggmflow.explorer.session import Session
from ggmflow.views import pairs as views

# The browser records the time of each key press. When the observer is called, the text has changed; Bokeh paints in the
# next frame, in a callback that was requested before this one.
_WATCH = """
() => {
  window.moves = []
  const trust = Bokeh.index.find_one(Bokeh.documents[0].get_model_by_name("trust"))
  window.trust = () => trust.shadow_el.textContent
  window.addEventListener("keydown", (event) => window.moves.push({pressed: event.timeStamp}), true)
  new MutationObserver(() => {
    const move = window.moves.at(-1)
    if (move == null || move.text != null) return
    move.text = window.trust()
    requestAnimationFrame(() => { move.changed = performance.now() })
  }).observe(trust.shadow_el, {childList: true, characterData: true, subtree: true})
}
"""


def main() -> None:
    """Print the median and the 95 % quantile of the time of a move, in the server and in the browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-features", type=int, default=30)
    parser.add_argument("--moves", type=int, default=60)
    arguments = parser.parse_args()
    X, _ = gf.simulate.toy_problem(arguments.n_features, 100, random_state=0)
    model = gf.GraphicalFlow(steps=100, random_state=0, progress=False).fit(X)
    prepared = prepare(model, evidence=False)
    few, many = (views.num_draws_of(model, quick) for quick in (True, False))
    wall, here, rest = in_server(prepared, arguments.moves)
    with serving(prepared) as address:
        drawn, seen = in_browser(address, many, arguments.moves)
    print(f"d = {arguments.n_features}, {few} draws, {arguments.moves} moves")
    print("| ms a move | median | 95 % below |")
    print("|---|---|---|")
    rows = {
        "server, without a connection": wall,
        "of which in Python's thread": here,
        "server, with a browser": drawn,
        "browser: key pressed to page painted": seen,
    }
    for name, seconds in rows.items():
        median, tail = 1000 * np.quantile(seconds, [0.5, 0.95])
        print(f"| {name} | {median:.0f} | {tail:.0f} |")
    print(f"at rest, {many} draws: {1000 * rest:.0f} ms in the server")


def in_server(prepared: Prepared, moves: int) -> tuple[list[float], list[float], float]:
    """Seconds of each move, those spent in this thread, and seconds of one redraw at rest."""
    session, rng = Session(Document(), prepared), np.random.default_rng(0)
    controls = session.controls
    session.changes.begin()
    session.redraw()
    wall, here = [], []
    for _ in range(moves):
        controls.lam.value = float(rng.uniform(controls.lam.start, controls.lam.end))
        controls.q.value = float(rng.uniform(*prepared.model.q_range_))
        start, start_here = time.perf_counter(), time.thread_time()
        session.redraw()
        wall.append(time.perf_counter() - start)
        here.append(time.thread_time() - start_here)
    start = time.perf_counter()
    session.redraw(at_rest=True)
    return wall, here, time.perf_counter() - start


@contextmanager
def serving(prepared: Prepared) -> Iterator[str]:
    """The address of a running server."""
    ready, known = threading.Event(), []

    async def answer() -> None:
        server, address = await listen(lambda doc: make_document(doc, prepared), 0)
        server.start()
        stopped = asyncio.Event()
        known.extend([address, asyncio.get_running_loop(), stopped])
        ready.set()
        await stopped.wait()
        await stop(server)

    thread = threading.Thread(target=lambda: asyncio.run(answer()), daemon=True)
    thread.start()
    if not ready.wait(30):
        raise RuntimeError("the server did not start")
    address, loop, stopped = known
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(30)


def in_browser(address: str, at_rest: int, moves: int) -> tuple[list[float], list[float]]:
    """Seconds of each move in the server, as the page gives them, and from the key press to the painted page."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(address)
        page.wait_for_function("window.Bokeh?.documents[0]?.get_model_by_name('trust') != null", timeout=60_000)
        page.evaluate(_WATCH)
        _wait_until_at_rest(page, at_rest)
        page.wait_for_timeout(5000)  # until the edges along λ are counted, once for each q and T
        page.locator(".noUi-handle").first.focus()
        for k in range(moves):
            page.keyboard.press("ArrowLeft" if k % 2 else "ArrowRight")
            page.wait_for_function(
                f"moves.length == {k + 1} && moves.at(-1).changed != null", timeout=60_000, polling=250
            )
            _wait_until_at_rest(page, at_rest)
        found = page.evaluate("moves")
        browser.close()
    drawn = [float(re.search(r"Drawn in (\d+) ms", move["text"])[1]) / 1000 for move in found]  # pyright: ignore
    return drawn, [(move["changed"] - move["pressed"]) / 1000 for move in found]


def _wait_until_at_rest(page: Page, num_draws: int) -> None:
    page.wait_for_function(f"trust().includes('num_draws={num_draws})')", timeout=60_000, polling=250)


if __name__ == "__main__":
    main()
