"""A block of HTML for notebooks: a title, facts in two columns, and a verdict beside a coloured dot.

All text is escaped, because names of variables come from unknown sources. Styles are inline and take their colours from
the page, so that the block can be read on a light and on a dark background.
"""

from collections.abc import Mapping
from html import escape
from typing import Literal

Level = Literal["good", "caution", "poor", "open"]

_DOTS = {"good": "#009e73", "caution": "#e69f00", "poor": "#d55e00", "open": "#999999"}
_PLAIN = "tex2jax_ignore mathjax_ignore"  # notebooks would typeset a name such as $x$
_BOX = (
    "display:inline-block;max-width:60em;padding:0.5em 0.9em;border:1px solid rgba(128,128,128,0.45);"
    "border-radius:6px;font-family:sans-serif;font-size:0.92em;line-height:1.45;color:inherit;text-align:left"
)
_LEFT = "padding:0.1em 1em 0.1em 0;opacity:0.7;white-space:nowrap;vertical-align:top;text-align:left;background:none"
_RIGHT = "padding:0.1em 0;vertical-align:top;text-align:left;overflow-wrap:anywhere;background:none"
_TITLE = "font-weight:600;overflow-wrap:anywhere"


def notebook_html(title: str, facts: Mapping[str, str], level: Level, verdict: str) -> str:
    """HTML of one object, as notebooks show it.

    Parameters
    ----------
    title
        In bold.
    facts
        Rows of a table: label and value.
    level
        Colour of the dot.
    verdict
        A sentence on how far to trust the object.

    Returns
    -------
    str
        HTML without external resources.

    Examples
    --------
    >>> "&lt;i&gt;" in notebook_html("Posterior", {"Variables": "<i>"}, "good", "Good fit.")
    True
    """
    rows = "".join(
        f'<tr style="background:none"><td style="{_LEFT}">{escape(name)}</td>'
        f'<td style="{_RIGHT}">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    dot = f'<span style="color:{_DOTS[level]}" aria-hidden="true">●</span>'
    return (
        f'<div class="{_PLAIN}" style="{_BOX}"><div style="{_TITLE}">{escape(title)}</div>'
        f'<table style="border:none;border-collapse:collapse;margin:0.3em 0;color:inherit">{rows}</table>'
        f"<div>{dot} {escape(verdict)}</div></div>"
    )


def name_some(names: list[str], most: int = 6) -> str:
    """The first few names, and how many there are in all."""
    return ", ".join(names[:most]) + (f", … ({len(names)} in all)" if len(names) > most else "")
