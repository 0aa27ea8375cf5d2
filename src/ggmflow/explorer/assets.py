"""The stylesheet and the scripts of the page, which are files of this package."""

from functools import cache
from importlib import resources


@cache
def read_asset(name: str) -> str:
    """The text of a file, for example ``page.css``."""
    return resources.files("ggmflow.explorer").joinpath(name).read_text(encoding="utf-8")
