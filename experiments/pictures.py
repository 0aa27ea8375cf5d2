"""Make the pictures of README and docs again: the demo's figures in one, the explorer and a report in a browser.

    python -m experiments.pictures            write docs/assets/{demo,explorer,report}.png

Needs Playwright and Chromium. Explorer and report show scikit-learn's diabetes table; the demo simulates its data.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_diabetes

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
NAMES = "age BMI pressure cholesterol LDL HDL ratio triglycerides glucose progression".split()
COLOURS = 128  # enough for flat drawings, and a third of the bytes
SERVE = """
import sys
import ggmflow as gf
gf.explorer.serve(
    gf.load_run(sys.argv[1]),
    port=0,
    open_browser=False,
    data_name="diabetes.csv",
    on_ready=lambda address: print(address, flush=True),
)
"""


def main() -> None:
    """Make all of them."""
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        _ggmflow("demo", "-o", folder / "demo")
        draw_demo(folder / "demo")
        diabetes().to_csv(folder / "diabetes.csv", index=False)
        _ggmflow("fit", folder / "diabetes.csv", "-o", folder / "run")
        draw_pages(folder / "run")


def diabetes() -> pd.DataFrame:
    """442 patients in the units of the study, without the column of two values, with readable names."""
    frame: pd.DataFrame = load_diabetes(as_frame=True, scaled=False).frame.drop(columns="sex")  # pyright: ignore
    return frame.set_axis(NAMES, axis=1)


def draw_demo(folder: Path) -> None:
    """The demo's figures, one below the other."""
    parts = [Image.open(folder / f"{name}.png").convert("RGB") for name in ("intervals", "path", "network")]
    whole = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), "white")
    above = 0
    for part in parts:
        whole.paste(part, (0, above))
        above += part.height
    whole.quantize(COLOURS).save(ASSETS / "demo.png", optimize=True)


def draw_pages(run: Path) -> None:
    """Explorer and report of a run, as Chromium shows them."""
    _ggmflow("report", run, "-o", run.parent / "report.html")
    server = subprocess.Popen([sys.executable, "-c", SERVE, run], stdout=subprocess.PIPE, text=True)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            assert server.stdout is not None
            page.goto(server.stdout.readline().strip())
            page.wait_for_timeout(20_000)  # edges along λ are counted while nothing moves
            _shoot(page, "explorer")
            page.set_viewport_size({"width": 1100, "height": 1190})
            page.goto((run.parent / "report.html").as_uri())
            page.wait_for_timeout(1000)
            _shoot(page, "report")
    finally:
        server.terminate()


def _ggmflow(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "ggmflow", *map(str, arguments)], check=True)


def _shoot(page: Page, name: str) -> None:
    path = ASSETS / f"{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main()
