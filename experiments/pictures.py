"""Make the pictures of README and docs again: the demo's figures in one, the explorer and a report in a browser.

    python -m experiments.pictures            write docs/assets/{demo,explorer,report}.png

Needs Playwright and Chromium. The data are simulated, under borrowed names.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from ggmflow.data import simulate

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
NAMES = "TP53 BRCA1 EGFR MYC KRAS PTEN RB1 CDK4 MDM2 AKT1 VEGFA STAT3 JUN FOS IL6".split()
ROWS, SEED, PORT = 200, 3, 5090
COLOURS = 128  # enough for the demo's flat drawings, and a third of the bytes


def main() -> None:
    """Make all of them."""
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        _ggmflow("demo", "-o", folder / "demo")
        _one_below_the_other([folder / "demo" / f"{name}.png" for name in ("intervals", "path", "network")])
        X, _ = simulate.toy_problem(len(NAMES), ROWS, alpha=0.9, random_state=SEED)
        pd.DataFrame(X, columns=np.array(NAMES)).to_csv(folder / "tumours.csv", index=False)
        _ggmflow("fit", folder / "tumours.csv", "-o", folder / "run")
        _ggmflow("report", folder / "run", "-o", folder / "report.html")
        explore = [*_COMMAND, "explore", folder / "run", "--port", str(PORT), "--no-browser"]
        server = subprocess.Popen(explore, stdout=subprocess.PIPE, text=True)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                assert server.stdout is not None
                page.goto(server.stdout.readline().removeprefix("Explorer at ").split()[0])
                page.wait_for_timeout(10_000)  # the curve of edges is counted while nothing moves
                _shoot(page, "explorer")
                page.set_viewport_size({"width": 1100, "height": 1190})
                page.goto((folder / "report.html").as_uri())
                page.wait_for_timeout(1000)
                _shoot(page, "report")
        finally:
            server.terminate()


_COMMAND = [sys.executable, "-m", "ggmflow"]


def _ggmflow(*arguments: object) -> None:
    subprocess.run([*_COMMAND, *map(str, arguments)], check=True)


def _one_below_the_other(paths: list[Path]) -> None:
    parts = [Image.open(path).convert("RGB") for path in paths]
    whole = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), "white")
    above = 0
    for part in parts:
        whole.paste(part, (0, above))
        above += part.height
    whole.quantize(COLOURS).save(ASSETS / "demo.png", optimize=True)


def _shoot(page: Page, name: str) -> None:
    page.screenshot(path=ASSETS / f"{name}.png")


if __name__ == "__main__":
    main()
