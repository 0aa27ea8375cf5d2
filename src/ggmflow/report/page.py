"""A fitted model → one HTML file that needs nothing else: numbers as JSON, pictures as SVG, script and style inside."""

import base64
import datetime
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.report import sections
from ggmflow.report import svg as drawing
from ggmflow.report import text as words
from ggmflow.report.content import FIELDS, RULES, Numbers, collect
from ggmflow.report.svg import escape
from ggmflow.storage.replace import replacing
from ggmflow.views import pairs as views


def write_report(
    model: GraphicalFlow,
    path: str | os.PathLike[str],
    *,
    data_name: str | None = None,
    reading: Mapping[str, Any] | None = None,
    lam: ArrayLike | None = None,
    q: ArrayLike | None = None,
) -> Path:
    """Write what was found as one HTML page that works in any browser, without a network.

    It shows the network, every edge with its interval, the evidence for λ and q and how far to trust all of it, at the
    selected point and, with sliders, on a grid of others. Every number is that of ``model.posterior(lam, q,
    num_draws=...)`` with the number of draws that the page states. Where the page would become too large, it holds the
    edges of the selected point and as many others as there is room for, and says so.

    Parameters
    ----------
    model
        Fitted.
    path
        The file; an existing one is replaced only when the new one is complete.
    data_name
        What to call the data, for example the name of their file.
    reading
        How their file was read, where that matters: arguments `delimiter`, `decimal` and `drop` of `Scatter.from_data`.
    lam, q : float or sequence of float, optional
        Values for the sliders, within the fitted ranges; default twelve λ and six q across them (nine and four where
        there are more than 1000 pairs), those of highest evidence among them.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile, ggmflow as gf
    >>> X, _ = gf.simulate.toy_problem(4, 30, random_state=0)
    >>> model = gf.GraphicalFlow(lam=2.0, q=1.0, temperature=1.0, steps=100, random_state=0, progress=False).fit(X)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     gf.write_report(model, f"{directory}/report.html").name
    'report.html'
    """
    check_is_fitted(model, "flow_")
    target = Path(path)
    if not target.parent.is_dir():  # before the work, not after it
        raise FileNotFoundError(errno.ENOENT, "there is no such directory: make it first", str(target.parent))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a directory: name a file in it, such as report.html", str(target))
    with replacing(target) as temporary:
        Path(temporary).write_text(
            render(model, collect(model, lam, q), data_name, reading), encoding="utf-8", newline="\n"
        )
    return target


def render(
    model: GraphicalFlow,
    numbers: Numbers,
    data_name: str | None = None,
    reading: Mapping[str, Any] | None = None,
) -> str:
    """The page as text.

    Parameters
    ----------
    model
        Fitted.
    numbers
        From `collect`.
    data_name, reading
        As in `write_report`.
    """
    names, query, point = model.scatter_.names, model.query_.tolist(), numbers.selected
    blanket, island = len(query) < len(names), for_script(numbers, names, query)
    style, script, page = (
        files("ggmflow.report").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js", "html")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    size = f"{model.scatter_.n:g} rows, {words.count(len(names), 'variable')}"
    if blanket:
        size += f"; links of {words.count(len(query), 'variable')} with all others"
    title = escape("Network report" if data_name is None else f"Network of {data_name}")
    parts = {
        # Nothing is loaded from anywhere, and no other script than this one runs, whatever a name may contain.
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "css": style,
        "script": script,
        "json": to_json(island),
        "title": title,
        "heading": f"<bdi>{title}</bdi>",
        "size": size,
        "date": datetime.date.today().isoformat(),
        "at": words.condition(numbers, *numbers.start),
        "rule": escape(point.selections[0].rule),
        "network": drawing.network(numbers, names, query, views.layout(model)),
        "light": point.verdict,
        "verdict": words.VERDICTS[point.verdict],
        "trust": escape(words.trust(point, numbers)),
        "reliability": words.reliability(numbers),
        "num_draws": str(numbers.num_draws),
        "khat_limit": f"{numbers.khat_limit:.2g}",
        "evidence_draws": str(views.num_draws_of(model)),
    }
    check = model.scatter_.check
    parts |= sections.about_point(numbers, names, island, caution=check is not None and bool(check.serious))
    parts |= sections.edges(numbers, names, island)
    parts |= sections.choice(numbers, island)
    parts |= sections.trust(model, numbers)
    parts |= sections.data_check(model)
    parts |= sections.data(model, data_name)
    parts |= sections.again(model, numbers, data_name, reading or {})
    return Template(page).substitute(parts)


def to_json(value: Any) -> str:
    """JSON that can stand inside a script element: ASCII, and no < > & that could end it or begin a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def for_script(numbers: Numbers, names: tuple[str, ...], query: list[int]) -> dict[str, Any]:
    """What the page's script needs, as plain numbers and text.

    Parameters
    ----------
    numbers
        From `collect`.
    names
        Of all variables.
    query
        Positions of the query variables.
    """
    kept, below = numbers.kept, numbers.below_best()
    fields: dict[str, Any] = {name: [_short(row) for row in numbers.field(name)] for name in FIELDS}
    bits = 1 << np.arange(len(RULES))
    fields["edge"] = [(bits @ point.edges[:, kept]).tolist() for point in numbers.points]
    ends = np.abs([numbers.field("lower"), numbers.field("upper")])
    limit = _round_up(float(np.nanmax(ends, initial=0.0)))
    lower = [np.nan] * len(numbers.points) if below is None else below.ravel().tolist()
    points = [
        {
            "n_edges": [each.n_edges for each in point.selections],
            "expected_fdr": [round(each.expected_fdr, 4) for each in point.selections],
            "rule": [each.rule for each in point.selections],
            "light": point.verdict,
            "verdict": words.VERDICTS[point.verdict],
            "words": words.trust(point, numbers),
            "evidence": words.evidence(lower[k]),
            "below": round(lower[k], 3) if np.isfinite(lower[k]) else -1e9,
        }
        for k, point in enumerate(numbers.points)
    ]
    along = "lam" if len(numbers.lam) > 1 else "q"
    axis = numbers.lam if along == "lam" else numbers.q
    frames = {}
    if len(axis) > 1:
        frames["pair-curve"] = drawing.frame(axis, -limit, limit, along == "lam")
    if len(axis) > 1 and below is not None:
        deepest = -float(below[np.isfinite(below)].min())
        frames["evidence-curve"] = drawing.frame(axis, -float(np.clip(np.ceil(deepest), 2, 20)), 0.0, along == "lam")
    return {
        "names": list(names),
        "blanket": len(query) < len(names),
        "lam": numbers.lam.tolist(),
        "q": numbers.q.tolist(),
        "start": list(numbers.start),
        "measures": list(words.MEASURES),
        "pairs": np.column_stack([numbers.first, numbers.second, numbers.inside])[kept].tolist(),
        "n_pairs": len(numbers.first),
        "pair": words.shown_first(numbers),
        "rows": sections.ROWS,
        "fields": fields,
        "points": points,
        "decimals": max(2, int(np.ceil(-np.log10(limit))) + 1),
        "limit": limit,
        "widest": drawing.widest(numbers),
        "along": along,
        "frames": frames,
    }


def _short(values: np.ndarray) -> list[float | None]:
    """Four digits, more than are shown."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]


def _round_up(value: float) -> float:
    """The next number with one digit."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** np.floor(np.log10(value))
    return float(np.round(np.ceil(value / unit - 1e-9) * unit, 12))
