"""Draw the figures of docs/gallery.md: one small fit, then the code of the page as it stands there.

    python -m experiments.gallery             write docs/assets/gallery/*.png

Each figure of the page has a Python block above it whose last line gives `ax`. The blocks run here in order, so that a
figure always is what the code beside it draws.
"""

import re
from pathlib import Path

import matplotlib

ROOT = Path(__file__).parents[1]
PAGE, FIGURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "assets" / "gallery"
PART = re.compile(r"^```python\n(.*?)^```|^!\[[^\]]*\]\(assets/gallery/([\w-]+\.png)\)", re.MULTILINE | re.DOTALL)
LARGEST = 200_000  # bytes of a figure


def main() -> None:
    """Run the page and save what it draws."""
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
