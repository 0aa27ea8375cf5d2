"""Tables of the page of results about the toy problem."""

import numpy as np
import pandas as pd

from experiments.paper import published
from experiments.paper.choice import FOLDS
from experiments.paper.statistics import Frame, Tables, difference
from experiments.paper.toy.estimates import edge_counts, entry_distance, falling, log_ratio, of_architecture, rmse_of
from experiments.paper.toy.settings import SHOWN


def page_tables(tables: Tables) -> dict[str, pd.DataFrame]:
    """Published numbers beside ours, agreement with the exact sampler, and both architectures; cells are text.

    ± is the standard deviation over data sets.
    """
    return {
        "toy-published": _comparison(tables),
        "toy-agreement": _agreement(tables["agreement"]),
        "toy-architectures": _architectures(tables),
    }


def _comparison(tables: Tables) -> pd.DataFrame:
    fits, selection = tables["fits"], tables["selection"]
    rows = []
    for name, shown in SHOWN.items():
        rmse = rmse_of(tables["recovery"], name)
        rows.append((f"RMSE of cold means to the graphical lasso, {shown}", f"{published.RMSE:g}", _spread(rmse)))
    by = published.LAM
    chosen = {
        "λ by evidence, q = 1": (f"{by['evidence']:g}", selection["lam_evidence"]),
        f"λ by cross-validation ({FOLDS} folds), q = 1": (f"{by['cross-validation']:g}", selection["lam_cv"]),
        "λ by the published quantity, q = 1": ("–", of_architecture(fits, "structured")["lam_published"]),
    }
    for quantity, (theirs, values) in chosen.items():
        rows.append((quantity, theirs, f"{_spread(values, '.2f')}, range {values.min():.2f} to {values.max():.2f}"))
    theirs = by["evidence"] / by["cross-validation"]
    mean, low, high = (float(np.exp(each)) for each in log_ratio(selection))
    rows.append(("λ by evidence over λ by cross-validation", f"{theirs:.2f}", f"{mean:.2f} [{low:.2f}, {high:.2f}]"))
    paths = tables["paths"]
    lasso = paths.loc[paths["q"] == 1, "from_lasso"].max()
    lam, counts = edge_counts(paths)
    edges = ", ".join(f"{count:.1f} (q = {q:g})" for q, count in counts.items())
    rows += [
        ("largest difference of an entry, mode at q = 1 to graphical lasso", "figure", f"{lasso:.0e}"),
        (f"edges of the modes at λ = {lam:.2g}", "figure", edges),
        (
            "values of λ at which the number of edges never rises when q falls",
            "figure",
            "{} of {}".format(*falling(paths)),
        ),
        (
            "95 % interval of one entry, q = 1: ends to the Bayesian graphical lasso's",
            "figure",
            f"at most {100 * entry_distance(tables['across_q']):.1f} % of its length",
        ),
    ]
    return pd.DataFrame(rows, columns=["quantity", "published", "ours"])


def _agreement(table: Frame) -> pd.DataFrame:
    rows = []
    for temperature in sorted(table["temperature"].unique(), reverse=True):
        here = table[table["temperature"] == temperature]
        own, paper = of_architecture(here, "structured"), of_architecture(here, "paper")
        refined = int((own["draws"] == "refined").sum())
        means = [own.groupby("seed")[name].mean() for name in ("flow", "used", "exact")]
        cells = [_spread(means[0]), f"{refined} of {len(own)}", _spread(means[1]), _spread(means[2])]
        rows.append((f"{temperature:g}", *cells, _spread(paper.groupby("seed")["flow"].mean())))
    columns = ["T", "flow", "refined", "after refinement", "exact sampler's own", "published architecture"]
    return pd.DataFrame(rows, columns=columns)


def _architectures(tables: Tables) -> pd.DataFrame:
    """Both architectures, with the mean of paired differences over data sets and its 95 % interval."""
    fits, agreement = tables["fits"], tables["agreement"]
    own, paper = (of_architecture(fits, name).set_index("seed") for name in ("structured", "paper"))
    warm = agreement[agreement["temperature"] == 1].pivot_table(
        index=["seed", "lam", "q"], columns="architecture", values=["elbo", "flow"]
    )
    deficit = (warm["elbo"]["structured"] - warm["elbo"]["paper"]).groupby("seed").mean()
    error, their_error = (warm["flow"][name].groupby("seed").mean() for name in ("structured", "paper"))
    rmse, their_rmse = (rmse_of(tables["recovery"], name) for name in ("structured", "paper"))
    lams = own["lam_published"], paper["lam_published"]
    rows = [
        ("steps", f"{own['steps'].mean():.0f}", f"{paper['steps'].mean():.0f}", ""),
        ("seconds of training", _spread(own["seconds"], ".0f"), _spread(paper["seconds"], ".0f"), ""),
        ("RMSE, T = 0.01", _spread(rmse), _spread(their_rmse), _interval(their_rmse - rmse, ".3f")),
        ("quantile error, T = 1, sd", _spread(error), _spread(their_error), _interval(their_error - error, ".3f")),
        ("ELBO deficit, T = 1, nats", "0", _spread(deficit, ".2f"), _interval(deficit, ".2f")),
        ("λ of the published quantity", *(_spread(lam, ".2f") for lam in lams), _interval(lams[1] - lams[0], ".2f")),
    ]
    return pd.DataFrame(rows, columns=["", "structured flow", "published architecture", "difference"])


def _spread(values: Frame, digits: str = ".3f") -> str:
    """Mean ± standard deviation over data sets; a dash if there are none."""
    if not len(values):
        return "–"
    mean = format(values.mean(), digits)
    return f"{mean} ± {format(values.std(), digits)}" if len(values) > 1 else mean


def _interval(values: Frame, digits: str) -> str:
    mean, low, high = difference(values)
    ends = f" [{format(low, digits)}, {format(high, digits)}]" if np.isfinite(high) else ""
    return f"{format(mean, digits)}{ends}"
