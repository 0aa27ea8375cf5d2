"""Files that are shipped with the package: style sheets, scripts and weights."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable


def package_file(path: str) -> Traversable:
    """A file by its path below `ggmflow`, for example ``flow/transport_64.npz``; it may be inside a ZIP file."""
    return resources.files("ggmflow").joinpath(path)


@cache
def package_text(path: str) -> str:
    """The text of a file by its path below `ggmflow`, for example ``explorer/page.css``."""
    return package_file(path).read_text(encoding="utf-8")
