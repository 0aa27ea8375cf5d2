"""Estimates of the toy problem that figures and page share, from its tables."""

from typing import Any

import numpy as np

from experiments.paper.statistics import Difference, Frame, difference


def of_architecture(table: Frame, architecture: str) -> Frame:
    return table[table["architecture"] == architecture]


def rmse_of(recovery: Frame, architecture: str) -> Frame:
    """RMSE over all λ, for each data set."""
    return (
        of_architecture(recovery, architecture).groupby("seed")["rmse"].agg(lambda values: np.sqrt(np.mean(values**2)))
    )


def of_seed(table: Frame, seed: Any) -> Frame:
    return table[table["seed"] == seed]


def compared_points(agreement: Frame) -> Frame:
    """Points that were compared, those of T = 1 first."""
    points = agreement[["lam", "q", "temperature"]].drop_duplicates()
    return points.sort_values(["temperature", "lam", "q"], ascending=[False, True, False])


def at_point(table: Frame, point: Any) -> Frame:
    same = (table["lam"] == point.lam) & (table["q"] == point.q) & (table["temperature"] == point.temperature)
    return table[same]


def log_ratio(selection: Frame) -> Difference:
    """log(λ of evidence / λ of cross-validation): mean and its interval."""
    return difference(np.log(selection["lam_evidence"] / selection["lam_cv"]))


def edge_counts(paths: Frame) -> tuple[float, Frame]:
    """The middle λ, and the mean number of edges there for each q, largest q first."""
    lams = np.unique(paths["lam"])
    lam = float(lams[(len(lams) - 1) // 2])
    counts = paths[paths["lam"] == lam].groupby("q")["n_edges"].mean()
    return lam, counts.sort_index(ascending=False)


def falling(paths: Frame) -> tuple[int, int]:
    """Number of λ at which the mean number of edges never rises when q falls, and number of all λ."""
    counts = paths.pivot_table(index="lam", columns="q", values="n_edges").to_numpy()
    return int(np.sum(np.all(np.diff(counts, axis=1) >= 0, axis=1))), len(counts)


def entry_distance(across_q: Frame) -> float:
    """Largest difference between ends at q = 1, relative to the length of the Bayesian graphical lasso's interval."""
    known = across_q[across_q["q"] == 1].set_index("method")[["lower", "upper"]]
    lasso = known.loc["Bayesian graphical lasso, λ given"]
    return float((known.loc["flow"] - lasso).abs().max() / (lasso["upper"] - lasso["lower"]))
