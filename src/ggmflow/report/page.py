"""A fitted model as one HTML file: templates with drawings, style, script and data, without external resources."""

import base64
import datetime
import errno
import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.weights import Verdict
from ggmflow.report import svg, text
from ggmflow.report.content import LEVEL, RULES, THRESHOLD, Content, collect
from ggmflow.report.reproduction import python_code
from ggmflow.report.script import script_data, to_json
from ggmflow.report.table import blank_row, edge_rows
from ggmflow.storage.archive import versions
from ggmflow.storage.package_files import package_text
from ggmflow.storage.replace import replacing
from ggmflow.views.layout import network_layout
from ggmflow.views.pairs import num_draws_of


def write_report(
    model: GraphicalFlow,
    path: str | os.PathLike[str],
    *,
    data_name: str | None = None,
    reading: Mapping[str, Any] | None = None,
    lam: ArrayLike | None = None,
    q: ArrayLike | None = None,
) -> Path:
    """Write the results of a fit as one HTML page, which works in any browser and without a network connection.

    The page shows the network, every edge with its interval, the evidence for λ and q, and the quality of the fit, at
    the selected point and, with sliders, on a grid of other points. Every number is that of ``model.posterior(lam, q,
    num_draws=...)`` with the number of draws that the page states. If the page would become too large, it contains the
    edges of the selected point and as many other pairs as possible, and says so.

    Parameters
    ----------
    model
        Fitted model.
    path
        File to write; an existing file is replaced only when the new one is complete.
    data_name
        Name of the data, for example of their file.
    reading
        Arguments `delimiter`, `decimal` and `drop` of `Scatter.from_data` with which the file was read, if any.
    lam, q : float or sequence of float, optional
        Values of the sliders, within the fitted ranges; default twelve λ and six q across them (nine and four for more
        than 1000 pairs), including those of highest evidence.

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
    if not target.parent.is_dir():  # raise before drawing
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
    content: Content,
    data_name: str | None = None,
    reading: Mapping[str, Any] | None = None,
) -> str:
    """Return the page as text.

    Parameters
    ----------
    model
        Fitted model.
    content
        Content of the report, from `collect`.
    data_name, reading
        As in `write_report`.
    """
    data, script = script_data(content), package_text("report/page.js")
    # The only strings that templates insert without escaping.
    safe = {"css": package_text("report/page.css"), "script": script, "json": to_json(data)}
    drawings = {
        "network": svg.network(content, network_layout(model)),
        "evidence_map": svg.evidence_map(content),
        "pair_curve": svg.pair_curve(content),
        "evidence_curve": svg.evidence_curve(content),
        "trust_map": svg.trust_map(content),
    }
    return (
        _environment()
        .get_template("page.html")
        .render(
            {name: Markup(each) for name, each in safe.items()},
            drawings={name: Markup(each) for name, each in drawings.items()},
            content=content,
            data=data,
            digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            title="Network report" if data_name is None else f"Network of {data_name}",
            data_name=data_name,
            date=datetime.date.today().isoformat(),
            start=text.condition(content, *content.start),
            Verdict=Verdict,
            # Draws of a flow have no chains that move; the other verdicts explain the colours of any report.
            legend=[each for each in Verdict if each is not Verdict.MOVING or each in content.verdicts],
            rules=RULES,
            level=LEVEL,
            threshold=THRESHOLD,
            rows=edge_rows(content),
            blank_row=blank_row(content),
            n_listed=int(content.selected.edges[0, content.kept].sum()),
            model=model,
            scatter=model.scatter_,
            check=model.scatter_.check,
            training=text.training(model.status_, model.n_iter_, int(model.history_["skipped"].iloc[-1])),
            ranges=text.ranges({"λ": model.lam_range_, "q": model.q_range_, "T": model.temperature_range_}),
            code=python_code(model, content, data_name, reading or {}),
            versions=versions(),
            evidence_draws=num_draws_of(model),
        )
    )


@functools.cache
def _environment() -> Environment:
    """The templates. All inserted strings are escaped, except those of type `Markup`."""

    def finalize(value: Any) -> Any:
        return text.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("ggmflow.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.globals["text"] = text
    return environment
