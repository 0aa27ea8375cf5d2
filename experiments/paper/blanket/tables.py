"""Tables of the page of results about Markov blankets."""

import numpy as np
import pandas as pd

from experiments.paper.blanket import clinical
from experiments.paper.blanket.figures import studies_of, where
from experiments.paper.blanket.jobs import COMPARED, EDGE, RULES, WIDE
from experiments.paper.statistics import Frame, Tables


def page_tables(tables: Tables) -> dict[str, pd.DataFrame]:
    """Published figures beside our numbers, the studies, and λ, errors and edges at the compared q; cells are text."""
    return {
        "blanket-published": _comparison(tables),
        "blanket-studies": _studies(tables),
        "blanket-points": _points(tables),
    }


def _comparison(tables: Tables) -> pd.DataFrame:
    points, kaufmann = tables["points"], tables["kaufmann"]
    edges, exact = (points.pivot_table(index="study", columns="q", values=name) for name in ("edges", "edges_exact"))
    counts = [
        "; ".join(f"{study} {_change(wide.loc[study])}" for study in studies_of(tables)) for wide in (edges, exact)
    ]
    change = changes(tables)
    farther, wider = int((change["size"] > 0).sum()), int((change["width"] > 0).sum())
    refined = int(points["refined_error"].notna().sum())
    distance, share = ends_distance(tables["strongest"])
    rows = [
        (
            f"error of the flow's quantiles against the exact sampler, {len(points)} points",
            "not checked",
            f"{_range(points['error'])} sd; {refined} refined; the sampler's own {_range(points['own_error'])}",
        ),
        (
            "error against the sampler of Kaufmann et al., q = 1",
            "not checked",
            f"{_range(kaufmann['error'])} sd; exact sampler {_range(kaufmann['exact_error'])}, "
            f"{_range(chance_ratio(kaufmann), '.2f')} times the difference expected by chance",
        ),
        (f"edges by {100 * EDGE:g} % intervals, {_change_of_q()}", "figure, data not public", f"{counts[0]}"),
        ("the same by the exact sampler", "–", f"{counts[1]}"),
        (
            f"{100 * WIDE:g} % intervals of the four strongest entries, {_change_of_q()}",
            "figure, data not public",
            f"median farther from zero for {farther} of {len(change)}, interval wider for {wider}",
        ),
        (
            "ends of these intervals against the exact sampler's",
            "–",
            f"{distance:.3f} on average, {100 * share:.1f} % of their width",
        ),
    ]
    return pd.DataFrame(rows, columns=["quantity", "published", "ours"])


def _studies(tables: Tables) -> pd.DataFrame:
    rows = [
        (
            f"`{each.study}`",
            clinical.STUDIES[each.study].package,
            f"{each.n} ({each.n_dropped} left out)",
            ", ".join(clinical.STUDIES[each.study].clinical),
            f"{each.n_genes}",
            f"{each.entries}",
            f"{each.seconds:.0f} s",
        )
        for each in tables["studies"].itertuples()
    ]
    return pd.DataFrame(rows, columns=["study", "package", "rows", "clinical variables", "genes", "entries", "fit"])


def _points(tables: Tables) -> pd.DataFrame:
    rows = []
    for study in studies_of(tables):
        best = where(tables["choices"], study=study, rule="conditional")["value"].max()
        for q in COMPARED:
            found = {rule: where(tables["choices"], study=study, q=q, rule=rule).iloc[0] for rule in RULES}
            point = where(tables["points"], study=study, q=q).iloc[0]
            lams = [f"{found[rule]['lam']:.1f}" for rule in RULES]
            below, error = f"{best - found['conditional']['value']:.1f}", f"{point['error']:.3f}"
            worst = f"{point['largest']:.2f} ({point['worst']})"
            edges = f"{point['edges']} / {point['edges_exact']} / {point['edges_both']}"
            rows.append((f"`{study}`", f"{q:g}", *lams, below, error, worst, edges))
    columns = ["study", "q", "λ, clinical given genes", "λ, all data", "λ, published quantity", "nats below best q"]
    return pd.DataFrame(rows, columns=[*columns, "error, sd", "worst entry", "edges: flow / exact / both"])


def changes(tables: Tables) -> Frame:
    """Change of |median| and of the interval's width from q = 1 to the lowest q, a row for each of the strongest."""
    table = tables["strongest"]
    table = table.assign(size=table["median"].abs(), width=table["upper"] - table["lower"])
    one, low = (where(table, q=q).set_index(["study", "row", "column"])[["size", "width"]] for q in COMPARED)
    return low - one


def ends_distance(strongest: Frame) -> tuple[float, float]:
    """Mean distance between ends of intervals of flow and exact sampler, absolute and relative to their mean width."""
    distance = float(np.mean([np.abs(strongest[end] - strongest[f"exact_{end}"]) for end in ("lower", "upper")]))
    return distance, distance / float(np.mean(strongest["exact_upper"] - strongest["exact_lower"]))


def chance_ratio(kaufmann: Frame) -> Frame:
    """Difference between the two samplers over the one that their own errors explain."""
    return kaufmann["exact_error"] / np.hypot(kaufmann["own_error"], kaufmann["exact_own_error"])


def _change(row: Frame) -> str:
    return f"{row[max(COMPARED)]:.0f} → {row[min(COMPARED)]:.0f}"


def _change_of_q() -> str:
    return f"q = {max(COMPARED):g} → {min(COMPARED):g}"


def _range(values: Frame, digits: str = ".3f") -> str:
    low, high = (format(float(each), digits) for each in (np.min(values), np.max(values)))
    return low if low == high else f"{low} to {high}"
