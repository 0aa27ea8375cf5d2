"""Scores of all data sets, by the label of the method."""

from typing import NamedTuple

import numpy as np

from experiments.paper import published
from experiments.paper.edges.jobs import PENALTIES
from experiments.paper.statistics import Frame, Tables

EVIDENCE, BGL = "λ and q by evidence", "Bayesian graphical lasso"


def labelled(tables: Tables) -> Frame:
    """Scores joined with their data set, a label of the method, and whether the draws were refined."""
    known = tables["data"][["job", "kind", "d", "n", "truth", "pairs", "edges", "strong_edges", "steps"]]
    frame = tables["scores"].merge(known, on="job")
    frame["label"] = [_label(*row) for row in frame[["method", "choice", "q"]].itertuples(index=False)]
    errors = agreement_labelled(tables)
    refined = set(zip(errors["job"], errors["label"], errors["refined_error"].notna(), strict=True))
    keys = zip(frame["job"], frame["label"], frame["method"] == "flow", strict=True)
    frame["refined"] = [key in refined and key[2] for key in keys]
    return frame


def agreement_labelled(tables: Tables) -> Frame:
    """Quantile errors with labels: of the draws that were scored (`used`), and without the reference's own (`beyond`).

    Errors of independent origin add in squares: `beyond` is √(used² − own²), zero where the reference's own is larger.
    """
    table = tables["agreement"]
    labels = [_label("flow", *row) for row in table[["choice", "q"]].itertuples(index=False)]
    used = table["refined_error"].fillna(table["flow_error"])
    beyond = np.sqrt((used**2 - table["exact_error"] ** 2).clip(lower=0))
    return table.assign(label=labels, used=used, beyond=beyond)


def _label(method: str, choice: str, q: float) -> str:
    if method in ("flow", "exact"):
        if choice == "evidence":
            return EVIDENCE
        return f"q = {q:g}" if choice == "published at 1" or q == 1 else f"q = {q:g}, own λ"
    return {"BGL": BGL, "adapt": "adaptive", "lasso": f"graphical lasso ({choice.upper()})"}.get(method, method)


class Methods(NamedTuple):
    """Labels of the methods in a table, in the order of pictures and tables."""

    posteriors: list[str]
    penalties: list[str]

    @property
    def all(self) -> list[str]:
        """Posteriors, then penalties."""
        return [*self.posteriors, *self.penalties]

    @property
    def smallest(self) -> str:
        """The posterior at the smallest q with the λ of q = 1."""
        return min((each for each in self.posteriors if each.startswith("q") and "own" not in each), key=exponent)


def exponent(label: str) -> float:
    return float(label.removeprefix("q = ").removesuffix(", own λ"))


def methods(frame: Frame) -> Methods:
    """Methods in the table: decreasing q with the λ of q = 1, then each q with its own λ, then the others."""
    found = set(frame["label"])
    of_q = sorted((each for each in found if each.startswith("q")), key=lambda each: ("own" in each, -exponent(each)))
    names = ["adaptive" if name == "adapt" else name for name in PENALTIES]
    names += ["graphical lasso (CV)", "graphical lasso (EBIC)"]
    return Methods([*of_q, EVIDENCE, BGL], [name for name in names if name in found])


def spread(frame: Frame, measure: str, kind: str = "sparse") -> Frame:
    """One column of the scores of one kind of data sets: a row for each (n, truth), a column for each label."""
    rows = frame[(frame["kind"] == kind) & (frame["method"] != "exact")]
    wide = rows.pivot_table(index=["n", "truth"], columns="label", values=measure)
    return wide.reindex(columns=methods(frame).all)


def published_values(frame: Frame) -> dict[str, dict[int, float]]:
    """The two methods whose published values are known, with those values at the n of the table."""
    counts = set(frame.loc[frame["kind"] == "sparse", "n"])
    return {
        label: {n: value for n, value in zip(published.F1_ROWS, published.F1[name], strict=True) if n in counts}
        for label, name in ((methods(frame).smallest, "flow"), (BGL, "BGL"))
    }


def other_kinds(frame: Frame) -> list[tuple[str, int]]:
    """Kind and n of data sets that are neither of the main comparison nor of the published matrix, in their order."""
    others = frame[~frame["kind"].isin(["sparse", "published"])]
    return list(dict.fromkeys(zip(others["kind"], others["n"].astype(int), strict=True)))
