"""Tables of the page of results about runtime."""

import pandas as pd

from experiments.paper import published
from experiments.paper.runtime.estimates import blanket, blanket_ratios, count, matrices, measured, number
from experiments.paper.statistics import Tables


def page_tables(tables: Tables) -> dict[str, pd.DataFrame]:
    """Published times beside ours, costs by size, NUTS and the published architecture; cells are text."""
    return {
        "runtime-published": _comparison(tables),
        "runtime-costs": _costs(tables),
        "runtime-grids": _grids(tables),
        "runtime-nuts": _nuts(tables),
        "runtime-architecture": _architecture(tables),
    }


def _comparison(tables: Tables) -> pd.DataFrame:
    row, sizes = blanket(tables)[0], matrices(tables)
    size = f"s = {row['s']:g}, t = {row['d'] - row['s']:g}"
    seconds, rate = float(tables["kaufmann"]["seconds_per_500"].median()), float(row["draws_per_second"])
    wins = ", ".join(f"{count(each['wins'])} at d = {each['d']:g}" for each in sizes.to_dict("records"))
    rows = [
        (
            f"{published.GIBBS_DRAWS} draws of the sampler of Kaufmann et al., {size}",
            f"{published.GIBBS_SECONDS:g} s",
            show_seconds(seconds),
            f"{ratio(published.GIBBS_SECONDS / seconds)} times as fast",
        ),
        (
            f"draws per second of the flow, {size}",
            f"{number(published.FLOW_RATE)} (TITAN X)",
            f"{number(rate)} (two CPU cores)",
            f"{ratio(rate / published.FLOW_RATE)} times as many",
        ),
        (
            "draws per second, flow over that sampler",
            ratio(published.RATE_RATIO),
            ratio(blanket_ratios(tables)[0]),
            f"{ratio(blanket_ratios(tables)[1])} over its effective draws",
        ),
        ("points (λ, q) from which the flow takes less time than the exact sampler", "not compared", wins, ""),
    ]
    both = measured(tables["published"]).merge(sizes[["d", "fit_seconds"]], on="d").nlargest(1, "layers")
    for each in both.to_dict("records"):
        full = published.TRAINING_STEPS * each["seconds_per_step"]
        times = f"{ratio(full / each['fit_seconds'])} times the fit of the structured flow"
        what = f"training the published flow, {number(published.TRAINING_STEPS)} steps, d = {each['d']:g}"
        rows.append((what, "time not stated", f"{show_seconds(full)}, extrapolated", times))
    return pd.DataFrame(rows, columns=["quantity", "published", "ours", ""])


def _costs(tables: Tables) -> pd.DataFrame:
    rows = [
        (
            f"{row['d']:g}" if row["d"] == row["s"] else f"{row['d']:g}, blanket of {row['s']:g}",
            f"{row['n']:g}",
            show_seconds(row["fit_seconds"]),
            show_seconds(row["compile_seconds"]),
            show_seconds(row["flow_each"]),
            show_seconds(row["exact_each"]),
            count(row["wins"]),
            count(row["wins_unwarmed"]),
            f"{row['error']:.3f}",
            f"{row['refined_points']:g} of 4",
        )
        for row in [*matrices(tables).to_dict("records"), dict(blanket(tables)[0])]
    ]
    columns = ["d", "n", "fit", "compilation", "flow, a point", "exact, a point", "flow faster from"]
    return pd.DataFrame(rows, columns=[*columns, "warm-up not counted", "largest error, sd", "refined"])


def _grids(tables: Tables) -> pd.DataFrame:
    """The largest grid of every size, done in full by both methods."""
    largest = tables["grids"].loc[tables["grids"].groupby("d")["points"].idxmax()]
    rows = [
        (
            f"{row['d']:g}",
            f"{row['points']:g}",
            show_seconds(row["flow_seconds"]),
            show_seconds(row["exact_seconds"]),
            ratio(row["exact_seconds"] / row["flow_seconds"]),
        )
        for row in largest.to_dict("records")
    ]
    return pd.DataFrame(rows, columns=["d", "points", "flow, fit included", "exact sampler", "exact : flow"])


def _nuts(tables: Tables) -> pd.DataFrame:
    rows = [
        (
            f"{row['d']:g}",
            f"{row['q']:g}",
            number(row["exact_per_second"]),
            number(row["nuts_per_second"]),
            ratio(row["exact_per_second"] / row["nuts_per_second"]),
            f"{row['nuts_rhat']:.3f}",
            f"{row['exact_rhat']:.3f}",
        )
        for row in measured(tables["nuts"]).to_dict("records")
    ]
    return pd.DataFrame(rows, columns=["d", "q", "exact sampler", "NUTS", "ratio", "R̂ of NUTS", "R̂ of exact"])


def _architecture(tables: Tables) -> pd.DataFrame:
    rows = [
        (
            f"{row['layers']:g}",
            number(row["parameters"]),
            show_seconds(row["seconds_per_step"]),
            show_seconds(published.TRAINING_STEPS * row["seconds_per_step"]),
            number(row["draws_per_second"]),
        )
        for row in measured(tables["published"]).to_dict("records")
    ]
    steps = f"{number(published.TRAINING_STEPS)} steps, extrapolated"
    return pd.DataFrame(rows, columns=["layers", "parameters", "a step", steps, "draws per second"])


def show_seconds(seconds: float) -> str:
    """Milliseconds to hours, in three digits."""
    for unit, size, below in (("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0)):
        if seconds < below:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 3600)} h"


def ratio(value: float) -> str:
    """Two digits: timings are not known better."""
    return number(float(f"{value:.2g}"))
