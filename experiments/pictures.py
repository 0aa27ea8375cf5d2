"""Make the pictures of README and docs: the demo's figures in one image, and screenshots of explorer and report.

    python -m experiments.pictures            write docs/assets/{demo,explorer,report}.png

Needs Playwright and Chromium. The data are simulated; the names of their columns are those of genes.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from PIL import Image
from playwright.sync_api import sync_playwright

from ggmflow.data import simulate

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
NAMES = "TP53 BRCA1 EGFR MYC KRAS PTEN RB1 CDK4 MDM2 AKT1 VEGFA STAT3 JUN FOS IL6".split()
ROWS, SEED = 200, 3
COLOURS = 128  # enough for the demo's figures, with a third of the bytes
SERVE = """
import sys
import ggmflow as gf
gf.explorer.serve(
    gf.load_run(sys.argv[1]),
    port=0,
    open_browser=False,
    data_name=sys.argv[2],
    on_ready=lambda address: print(address, flush=True),
)
"""


def main() -> None:
    """Make all pictures."""
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        _ggmflow("demo", "-o", folder / "demo")
        _stack([folder / "demo" / f"{name}.png" for name in ("intervals", "path", "network")])
        X, _ = simulate.toy_problem(len(NAMES), ROWS, alpha=0.9, random_state=SEED)
        pd.DataFrame(X, columns=np.array(NAMES)).to_csv(folder / "tumours.csv", index=False)
        _ggmflow("fit", folder / "tumours.csv", "-o", folder / "run")
        _ggmflow("report", folder / "run", "-o", folder / "report.html")
        serve = [sys.executable, "-c", SERVE, folder / "run", "tumours.csv"]
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                assert server.stdout is not None
                page.goto(server.stdout.readline().strip())
                page.wait_for_timeout(10_000)  # edges along λ are counted while nothing moves
                page.screenshot(path=ASSETS / "explorer.png")
                page.set_viewport_size({"width": 1100, "height": 1190})
                page.goto((folder / "report.html").as_uri())
                page.wait_for_timeout(1000)
                page.screenshot(path=ASSETS / "report.png")
        finally:
            server.terminate()


def _ggmflow(*arguments: object) -> None:
    """Run a command of ggmflow."""
    subprocess.run([sys.executable, "-m", "ggmflow", *map(str, arguments)], check=True)


def _stack(paths: list[Path]) -> None:
    """Write images below each other into demo.png."""
    parts = [Image.open(path).convert("RGB") for path in paths]
    whole = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), "white")
    above = 0
    for part in parts:
        whole.paste(part, (0, above))
        above += part.height
    whole.quantize(COLOURS).save(ASSETS / "demo.png", optimize=True)


if __name__ == "__main__":
    main()
