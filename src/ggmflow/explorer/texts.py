"""Texts of the page, as HTML. Names of variables and files are untrusted and therefore escaped.

Only at T = 1 are the draws those of the posterior. At other temperatures the texts give no probabilities, and do not
call intervals credible.
"""

import html

import numpy as np

from ggmflow.explorer.prepared import Prepared
from ggmflow.posterior.edge_rules import EDGE_RULES
from ggmflow.posterior.tables import Scale
from ggmflow.views.pairs import View

LEGEND = (
    "<span class=key style='border-color:#2166ac;margin-left:0'></span>positive"
    "<span class=key style='border-color:#d95f02;border-top-style:dashed'></span>negative"
    "<span class=faint style='margin-left:14px'>width: size of the association. Click a node or an edge.</span>"
)


def heading(title: str, more: str, style: str = "faint") -> str:
    """A title, and more beside it in another style; both are HTML."""
    return f"<h2>{title}</h2> <span class={style}>{more}</span>"


def page_heading(prepared: Prepared) -> str:
    """Name and size of the data."""
    d, s = len(prepared.model.scatter_.names), len(prepared.model.query_)
    size = f"{prepared.model.scatter_.n_rows:g} rows × {d} variables"
    if s < d:
        size += f", {s} of them in the query"
    name = "" if prepared.data_name is None else f"<b>{html.escape(prepared.data_name)}</b>, "
    return f"<h1>ggmflow explorer</h1> &nbsp; {name}<span class=faint>{size}</span>"


def evidence_heading(prepared: Prepared) -> str:
    """Title of the plane of (λ, q)."""
    if prepared.surface is None and prepared.late is not None and not prepared.late.has_ended:
        return heading("Evidence", "being computed …")
    if prepared.surface is None:
        return heading("Current λ and q", "drag the ring; no evidence computed")
    return heading("Evidence", "drag the ring; ★ is the best")


def edge_summary(view: View) -> str:
    """The number of edges, and the rule that selects them."""
    count = "no edges" if not view.n_edges else "1 edge" if view.n_edges == 1 else f"{view.n_edges} edges"
    summary = f"<h2>{count}</h2> of {len(view.pairs)} pairs ({view.density:.1%})"
    if view.temperature != 1:
        return (
            f"{summary}<div class=note>Tempered posterior at T&nbsp;=&nbsp;{view.temperature:g}: narrower than the "
            "posterior, so not for intervals and probabilities. Edges are those of the rule on the left, applied "
            "to these draws.</div>"
        )
    if view.n_edges and not EDGE_RULES[view.selection.key].states_fdr:
        summary += f", {view.expected_fdr:.0%} of them expected to be false"
    return f"{summary}<br><span class=faint>{html.escape(view.rule)}</span>"


def table_heading(view: View) -> str:
    """Title of the table of edges: where its probabilities come from."""
    if not view.n_edges:
        return heading("Edges", "none qualifies: less shrinkage, or another rule")
    if view.temperature != 1:
        return heading("Edges", _spread(view))
    if not np.isnan(view.pairs["probability"].to_numpy()).all():
        return heading("Edges", "P(edge): by the rule's model of all pairs")
    return heading("Edges", "P(edge): |association| > 0.1")


def interval_heading(view: View, node: str | None) -> str:
    """Title of the intervals: which pairs they belong to.

    Parameters
    ----------
    view
        The view whose pairs are shown.
    node
        Name of the selected variable, if there is one.
    """
    if node is not None:
        pairs = f"pairs of {html.escape(node)}"
    else:
        pairs = "edges" if view.n_edges else "pairs; none is an edge"
    spread = f"Spread at T = {view.temperature:g}, not a credible interval"
    title = f"{100 * view.level:g} % intervals" if view.temperature == 1 else spread
    return heading(title, f"strongest {pairs}")


def pair_heading(view: View, pair: int, is_partial_correlation: bool) -> str:
    """Title of the posterior of one pair: its names, its mean and its interval.

    Parameters
    ----------
    view, pair
        Row of the table of pairs of this view.
    is_partial_correlation
        Whether both variables are in the query; otherwise the association is a regression weight.
    """
    row = view.pairs.iloc[pair]
    names = " – ".join(html.escape(str(row[side])) for side in ("row", "column"))
    scale = Scale.PARTIAL_CORRELATION if is_partial_correlation else Scale.REGRESSION_WEIGHT
    more = f"P(positive) = {row['p_positive']:.2f}" if view.temperature == 1 else _spread(view)
    interval = f"[{row['lower']:+.3f}, {row['upper']:+.3f}], {more}"
    return f"{heading(names, scale)}<br><b>{row['association']:+.3f}</b> <span class=faint>{interval}</span>"


def quality(view: View, seconds: float, at_rest: bool) -> str:
    """How far to trust the draws, how long they took, and how to get the same ones in Python.

    Parameters
    ----------
    view
        The view that is shown.
    seconds
        Time to compute and draw it.
    at_rest
        Whether it has all draws; while the page moves there are too few of them for a verdict.
    """
    num_draws = view.posterior.num_draws
    if at_rest:
        verdict = f"<span class={view.verdict}>●</span> <span class=faint>{html.escape(view.message)}"
    else:
        verdict = f"<span class=faint>In motion: {num_draws} draws."
    condition = f"{view.lam!r}, {view.q!r}" + ("" if view.temperature == 1 else f", {view.temperature!r}")
    return (
        f"{verdict} Drawn in {1000 * seconds:.0f} ms.</span><br><span class=faint>The same in Python:</span> "
        f"<code>model.posterior({condition}, num_draws={num_draws})</code>"
    )


def _spread(view: View) -> str:
    """The name of an interval that is not that of a posterior."""
    return f"spread at T = {view.temperature:g}, not a credible interval"
