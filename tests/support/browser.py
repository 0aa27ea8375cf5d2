"""Debian's Chromium through Playwright, for tests of pages; they skip where either is missing."""

import shutil

import pytest

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")  # Playwright keeps an event loop running, in which no other could run
def browser():
    """A running Chromium; `browser.new_page(viewport=...)` opens a page."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("browser tests need Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        yield running
        running.close()


def expecting(locator):
    """Playwright's assertions, which wait: a busy browser may handle a click or a key after Playwright has sent it."""
    from playwright.sync_api import expect

    return expect(locator)


@pytest.fixture
def page(browser):
    """A page of 1400×900 whose console errors, and errors of its scripts, fail the test at its end."""
    # Reduced motion: a click could miss a button that a smooth scroll still moves.
    page = browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    errors = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    page.close()
    assert not errors, errors
