"""Draw the figures of docs/gallery.md by running the code of that page.

    python -m experiments.gallery             write docs/assets/gallery/*.png

Each figure of the page follows a Python block that assigns `ax`. The blocks run here in their order, the first of them
a small fit, so that each figure is drawn by the code above it.
"""

import re
from pathlib import Path

import matplotlib

ROOT = Path(__file__).parents[1]
PAGE, FIGURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "assets" / "gallery"
PART = re.compile(r"^```python\n(.*?)^```|^!\[[^\]]*\]\(assets/gallery/([\w-]+\.png)\)", re.MULTILINE | re.DOTALL)
LARGEST = 200_000  # bytes of a figure


def main() -> None:
    """Run the code of the page and save its figures."""
    matplotlib.use("Agg")
    FIGURES.mkdir(parents=True, exist_ok=True)
    variables: dict = {"__name__": "__gallery__"}
    for match in PART.finditer(PAGE.read_text(encoding="utf-8")):
        code, figure = match.groups()
        if code is not None:
            variables.pop("ax", None)
            exec(compile(code, PAGE, "exec"), variables)
            continue
        path = FIGURES / figure
        variables["ax"].figure.savefig(path, dpi=110, metadata={"Software": None})
        size = path.stat().st_size
        if size > LARGEST:
            raise SystemExit(f"{figure} has {size} bytes, more than {LARGEST}")
        print(f"{figure}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
