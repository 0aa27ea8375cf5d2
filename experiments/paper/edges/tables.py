"""Tables of the page of results about edges."""

from collections.abc import Mapping

import pandas as pd

from experiments.paper.edges.summary import (
    BGL,
    EVIDENCE,
    agreement_labelled,
    labelled,
    methods,
    other_kinds,
    published_values,
    spread,
)
from experiments.paper.statistics import Difference, Frame, Tables, difference, mean_se

DEFAULT = "default rule"  # column of F1 by the default rule at the λ and q of highest evidence


def page_tables(tables: Tables) -> dict[str, pd.DataFrame]:
    """Published F1 beside ours, all methods, paired differences, other graphs, errors; cells are text.

    ± is a standard error over data sets, brackets are 95 % t intervals of paired differences.
    """
    frame = labelled(tables)
    return {
        "edges-published": _comparison(frame),
        "edges-methods": _methods(frame),
        "edges-differences": _differences(frame),
        "edges-other": _others(frame),
        "edges-agreement": _agreement(frame, agreement_labelled(tables)),
    }


def _comparison(frame: Frame) -> pd.DataFrame:
    theirs, ours = (spread(frame, "f1_published", kind) for kind in ("published", "sparse"))
    rows = []
    for label, known in published_values(frame).items():
        for n, value in known.items():
            cells = ["{:.3f} ± {:.3f}".format(*mean_se(wide.loc[n, label])) for wide in (theirs, ours)]
            rows.append((str(n), label if label == BGL else f"flow at {label}", f"{value:g}", *cells))
    return pd.DataFrame(rows, columns=["n", "method", "published", "ours, published matrix", "ours, ten matrices"])


def _methods(frame: Frame) -> pd.DataFrame:
    """F1, Matthews' correlation and average precision of every method at the fewest and the most rows."""
    wide = {name: spread(frame, name) for name in ("f1", "mcc", "average_precision", "f1_default")}
    counts = wide["f1"].index.unique("n")
    ends = (counts[0], counts[-1])
    rows = []
    for label in methods(frame).all:
        cells = []
        for name, digits in (("f1", 3), ("mcc", 2), ("average_precision", 3), ("f1_default", 3)):
            means = [wide[name].loc[n, label].mean() for n in ends]
            cells.append(" / ".join("–" if pd.isna(mean) else f"{mean:.{digits}f}" for mean in means))
        rows.append((label, *cells))
    at = f"n = {ends[0]} / {ends[1]}"
    columns = ["", f"F1, {at}", f"MCC, {at}", f"average precision, {at}", f"F1 by the default rule, {at}"]
    return pd.DataFrame(rows, columns=columns)


def _differences(frame: Frame) -> pd.DataFrame:
    """Paired differences of F1 and average precision between methods, for each number of rows."""
    seen = methods(frame)
    f1 = spread(frame, "f1").assign(**{DEFAULT: spread(frame, "f1_default")[EVIDENCE]})
    ap = spread(frame, "average_precision")
    best, best_ranking = (wide[seen.penalties].groupby("n").mean().idxmax(axis=1).to_dict() for wide in (f1, ap))
    pairs: list[tuple[str, Frame, str, str | Mapping[int, str]]] = [
        (f"F1, interval: {seen.smallest} − q = 1, same λ", f1, seen.smallest, "q = 1"),
        (f"F1, interval: {seen.smallest} − {BGL}", f1, seen.smallest, BGL),
        (f"F1, interval: {seen.smallest} − best penalty", f1, seen.smallest, best),
        ("F1: default rule by evidence − best penalty", f1, DEFAULT, best),
        ("average precision: evidence − best penalty", ap, EVIDENCE, best_ranking),
    ]
    counts, rows = list(f1.index.unique("n")), []
    for what, wide, label, other in pairs:
        cells = []
        for n in counts:
            name = other if isinstance(other, str) else other[n]
            found = difference(wide.loc[n, label] - wide.loc[n, name])
            cells.append(_shown(found) + ("" if isinstance(other, str) else f" ({name})"))
        rows.append((what, *cells))
    return pd.DataFrame(rows, columns=["", *(f"n = {n}" for n in counts)])


def _shown(found: Difference) -> str:
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _others(frame: Frame) -> pd.DataFrame:
    """Other graphs and known networks; the best penalty is picked with the truth at hand, for each row."""
    seen, rows = methods(frame), []
    for kind, n in other_kinds(frame):
        f1, default, ap = (spread(frame, name, kind).loc[n] for name in ("f1", "f1_default", "average_precision"))
        best, ranked = (wide[seen.penalties].mean().idxmax() for wide in (f1, ap))
        about = frame[(frame["kind"] == kind) & (frame["n"] == n)].drop_duplicates("job")
        values = [f1[seen.smallest], default[EVIDENCE], f1[BGL], f1[best], ap[EVIDENCE], ap[ranked]]
        cells = [f"{each.mean():.3f}" for each in values]
        cells[3], cells[5] = f"{cells[3]} ({best})", f"{cells[5]} ({ranked})"
        edges = f"{about['edges'].mean():.0f} of {about['pairs'].iloc[0]}"
        rows.append((kind, str(about["d"].iloc[0]), str(n), str(len(about)), edges, *cells))
    columns = ["graph", "d", "n", "sets", "edges", f"F1, {seen.smallest}", "F1, default rule", f"F1, {BGL}"]
    return pd.DataFrame(rows, columns=[*columns, "F1, best penalty", "AP, evidence", "AP, best penalty"])


def _agreement(frame: Frame, errors: Frame) -> pd.DataFrame:
    """Quantile errors of the flow against the exact sampler, in posterior standard deviations."""
    both = frame[frame["method"].isin(["flow", "exact"])]
    f1 = both.pivot_table(index=["label", "job"], columns="method", values="f1")
    rows = []
    for label in [each for each in methods(frame).posteriors if each in set(errors["label"])]:
        at = errors[errors["label"] == label]
        refined = at["refined_error"].dropna()
        cells = [f"{at['flow_error'].mean():.3f}", f"{len(refined)} of {len(at)}", f"{at['used'].mean():.3f}"]
        cells += [f"{at['exact_error'].mean():.3f}", f"{100 * at['ess'].median():.1f} %"]
        rows.append((label, *cells, _shown(difference(f1.loc[label, "flow"] - f1.loc[label, "exact"]))))
    cells = [errors[name].mean() for name in ("flow_error", "used", "exact_error")]
    refined = f"{errors['refined_error'].notna().sum()} of {len(errors)}"
    ess = f"{100 * errors['ess'].median():.1f} %"
    rows.append(("all", f"{cells[0]:.3f}", refined, f"{cells[1]:.3f}", f"{cells[2]:.3f}", ess, ""))
    columns = ["", "flow", "refined", "after refinement", "exact sampler's own", "ESS, median", "F1, flow − exact"]
    return pd.DataFrame(rows, columns=columns)
