"""What is said of the toy problem, from its tables."""

import numpy as np
import pandas as pd

from experiments.paper.choice import FOLDS
from experiments.paper.reference import LIMIT
from experiments.paper.text import Frame, Tables, difference, filled, markdown
from experiments.paper.toy.numbers import (
    at_point,
    compared_points,
    edge_counts,
    entry_distance,
    falling,
    log_ratio,
    of_architecture,
    rmse_of,
)
from experiments.paper.toy.work import BAND, BATCH, PUBLISHED_LAM, PUBLISHED_RMSE, SHOWN, WIDE


def section(tables: Tables) -> str:
    """The part of the page about this experiment, in Markdown.

    Parameters
    ----------
    tables
        As the jobs made them; those of the published architecture may still be missing.
    """
    parts = "\n\n".join(
        [
            _what_was_done(tables),
            _said_of_intervals(tables),
            _said_of_modes(tables),
            _said_of_entry(tables["across_q"]),
            _said_of_choice(tables),
            _said_of_agreement(tables["agreement"]),
            _said_of_architectures(tables),
        ]
    )
    return "\n\n".join(map(filled, parts.split("\n\n")))


def verdicts(tables: Tables) -> pd.DataFrame:
    """Published numbers beside ours: what, published, ours, verdict."""
    fits, agreement, selection = tables["fits"], of_architecture(tables["agreement"], "structured"), tables["selection"]
    published = of_architecture(fits, "paper")
    found = {name: rmse_of(tables["recovery"], name) for name in SHOWN}
    rmse = f"{_spread(found['structured'])}; exact sampler {_spread(found['exact'])}"
    if len(published):
        rmse += f"; published architecture after {published['seconds'].mean():.0f} s {_spread(found['paper'])}"
    factor = PUBLISHED_RMSE / found["structured"].mean()
    lasso = tables["paths"].loc[tables["paths"]["q"] == 1, "from_lasso"].max()
    lam, counts = edge_counts(tables["paths"])
    entry = 100 * entry_distance(tables["across_q"])
    rows = [
        (
            "toy: RMSE to the graphical lasso, lowest temperature, q = 1",
            f"{PUBLISHED_RMSE:g} (printed as MSE)",
            rmse,
            f"{factor:.1f} times closer than published" if factor > 1 else f"{1 / factor:.1f} times further off",
        ),
        (
            "toy: λ by evidence / by cross-validation, q = 1",
            f"{PUBLISHED_LAM['evidence']:g} / {PUBLISHED_LAM['cv']:g} (units not stated)",
            f"{_spread(selection['lam_evidence'], '.2f')} / {_spread(selection['lam_cv'], '.2f')}",
            f"{_same_choice(selection)}; the published pair is {_within(selection)} the range of our data sets",
        ),
        (
            "toy: modes at q = 1 beside the graphical lasso",
            "figure",
            f"largest difference of an entry {lasso:.1g}",
            "the same" if lasso < 1e-5 else "not the same",
        ),
        (
            "toy: sparser modes for smaller q",
            "figure",
            f"edges at λ = {lam:.2g}: " + ", ".join(f"{count:.1f} (q = {q:g})" for q, count in counts.items()),
            "the smaller q, the fewer edges (or as many) at {} of {} λ".format(*falling(tables["paths"])),
        ),
        (
            "toy: interval of one entry at q = 1 beside the Bayesian graphical lasso",
            "figure",
            f"ends differ by at most {entry:.1f} % of its length",
            "the same" if entry < 5 else "alike" if entry < 20 else "different",
        ),
    ]
    for temperature, here in sorted(agreement.groupby("temperature"), reverse=True):
        ours = (
            f"error {_spread(here.groupby('seed')['flow'].mean())} sd; the sampler's own {here['exact'].mean():.3f} sd"
        )
        what = f"toy: quantiles of the flow beside the exact sampler, T = {temperature:g}"
        rows.append((what, "–", ours, _agree(here)))
    return pd.DataFrame(rows, columns=["what", "published", "ours", "verdict"])


def _what_was_done(tables: Tables) -> str:
    fits, lams = of_architecture(tables["fits"], "structured"), np.unique(tables["recovery"]["lam"])
    first, seconds, cold = fits.iloc[0], fits["seconds"], tables["agreement"]["temperature"].min()
    return f"""## Toy problem

{len(fits)} data sets, each with n = {first["n_samples"]} rows of d = {first["n_features"]} variables from a truth of
its own, whose Cholesky factor has 90 % zeros. On each, one structured flow is trained for λ from {lams[0]:.2g} to
{lams[-1]:.2g}, q from 0.25 to 1.25 and temperatures from {cold:g} to 1, in {seconds.median():.0f} s (median; the
longest took {seconds.max():.0f} s, which may include compilation) and {fits["steps"].max()} steps. Below, ± is the
standard deviation over data sets, λ = nρ acts on standardized columns, and figures with single entries show data set
{fits["seed"].min()}."""


def _said_of_intervals(tables: Tables) -> str:
    rmse, exact = (rmse_of(tables["recovery"], name) for name in ("structured", "exact"))
    table = tables["intervals"]
    cold, better = table["temperature"].min(), int((rmse < PUBLISHED_RMSE).sum())
    excess, low, high = difference(rmse - exact)
    refined = sorted(table.loc[table["draws"] == "refined", "temperature"].unique().tolist())
    note = (
        f" At T = {' and '.join(f'{each:g}' for each in refined)} the bands are from refined draws, because those of "
        f"the flow were more than {LIMIT:g} sd off at one of the points checked below."
        if refined
        else " The bands are the flow's own draws."
    )
    return f"""### Intervals along λ

![Credible intervals of six entries along λ at two temperatures](assets/results/toy/intervals.png)

{100 * BAND:.0f} % intervals at q = 1, with the graphical lasso dashed: towards T = 0 the posterior contracts to its
mode, which is the graphical lasso.{note} The means of the flow at T = {cold:g} differ from it by an RMSE of
**{_spread(rmse)}** over off-diagonal entries and {tables["recovery"]["lam"].nunique()} λ; the paper has
{PUBLISHED_RMSE:g}, which it prints as MSE although its code takes the root. {better} of {len(rmse)} data sets are below
that. The means of the exact sampler at this temperature are {_spread(exact)} away: T = {cold:g} is not yet
0. The flow's excess over them is {excess:.4f} ({_range(low, high, ".4f")}, 95 % t interval of the mean).

![RMSE to the graphical lasso along λ](assets/results/toy/recovery.png)"""


def _said_of_modes(tables: Tables) -> str:
    paths = tables["paths"]
    qs = paths["q"].unique().tolist()
    lams = np.unique(paths["lam"])
    shown = lams[:: max(1, len(lams) // 5)]
    counts = paths.groupby(["q", "lam"])["n_edges"]
    rows = [[f"{lam:.2g}", *(_spread(counts.get_group((q, lam)), ".1f") for q in qs)] for lam in shown]
    lasso = paths.loc[paths["q"] == 1, "from_lasso"].max()
    rest = paths[paths["q"] < 1]
    flow = int((rest["start"] == "flow").sum())
    order = "At {} of {} λ the mean number of edges never rises when q falls.".format(*falling(paths))
    return f"""### Modes

![Modes along λ for several q, and their number of edges](assets/results/toy/modes.png)

Stationary points with exact zeros (`model.path`), and how many pairs are not zero: mean and range. The largest KKT
residual of all {len(paths)} is {paths["kkt_residual"].max():.1g}. At q = 1 no entry differs from the graphical lasso by
more than {lasso:.1g}. Below q = 1 there are many local minima; of {len(rest)} cases the best one known was found from a
draw of the cold flow in {flow}, and from other starts in the rest. {order} Number of edges:

{markdown(["λ", *(f"q = {q:g}" for q in qs)], rows, right=True)}"""


def _said_of_entry(table: Frame) -> str:
    first, flow = table.iloc[0], table[table["method"] == "flow"]
    rows, shown = [], (table["method"] == "flow") | (table["q"] == 1)
    for part in table[shown].sort_values("method", key=lambda names: names != "flow", kind="stable").itertuples():
        ends = f"{part.lower:.3f} … {part.upper:.3f}" if part.lower < part.upper else "–"
        rows.append([part.method, f"{part.q:g}", f"{part.lam:.2f}", f"{part.median:.3f}", ends])
    length = flow["upper"] - flow["lower"]
    least, most = flow["q"].iloc[int(length.argmin())], flow["q"].iloc[int(length.argmax())]
    drawn = table.loc[table["method"].str.endswith("λ drawn"), "lam"].iloc[0]
    refined = int((flow["draws"] == "refined").sum())
    return f"""### One entry across q

![Intervals of one entry for several q, beside other methods](assets/results/toy/across_q.png)

The strongest entry, x{first["row"]} – x{first["column"]} ({"an" if first["true_edge"] else "no"} edge of the truth), at
the λ chosen by evidence for q = 1. The Bayesian graphical lasso is the exact sampler at q = 1, with this λ or with
λ ~ Gamma(1, rate 0.01), whose posterior mean is {drawn:.2f}. With the same λ the ends of its interval and the flow's
differ by at most {100 * entry_distance(table):.1f} % of the length. The interval is shortest at q = {least:g}
({length.min():.2f}) and longest at q = {most:g} ({length.max():.2f}). {refined} of the flow's {len(flow)} posteriors
had to be refined.

{markdown(["method", "q", "λ", "median", f"{100 * WIDE:.0f} % interval"], rows, right=True)}"""


def _said_of_choice(tables: Tables) -> str:
    selection, fits = tables["selection"], of_architecture(tables["fits"], "structured")
    mean, low, high = (float(np.exp(each)) for each in log_ratio(selection))
    evidence, folds = (_choice(selection[name]) for name in ("lam_evidence", "lam_cv"))
    rows = [
        ["evidence, the prior normalized on the cone", f"{PUBLISHED_LAM['evidence']:g}", evidence],
        ["published quantity: ELBO and constants of the off-diagonal", "", _choice(fits["lam_published"])],
        [f"graphical lasso, {FOLDS} folds", f"{PUBLISHED_LAM['cv']:g}", folds],
    ]
    return f"""### Choice of λ

![Evidence and cross-validation along λ; what they choose on all data sets](assets/results/toy/evidence.png)

{markdown(["λ = nρ at q = 1", "published, one data set", "ours: mean ± sd (range)"], rows, right=True)}

The paper does not state the units of its λ; as λ = nρ its pair is {_within(selection)} the range of our data sets. The
λ of highest evidence is {mean:.2f} times that of cross-validation ({_range(low, high, ".2f")}, geometric mean and its
95 % t interval; published {PUBLISHED_LAM["evidence"] / PUBLISHED_LAM["cv"]:.2f}): {_same_choice(selection)}. The
published quantity leaves the constant d log λ of the diagonal out, which moves its top towards smaller λ.
The largest standard error along the curves is {tables["evidence"]["se"].max():.2g} nats."""


def _said_of_agreement(agreement: Frame) -> str:
    own, published = of_architecture(agreement, "structured"), of_architecture(agreement, "paper")
    header = ["λ", "q", "T", "plain draws", "weighted where safe", "refined", "in the end", "exact sampler itself"]
    rows = []
    for point in compared_points(own).itertuples():
        here, theirs = at_point(own, point), at_point(published, point)
        refined = f"{int((here['draws'] == 'refined').sum())} of {len(here)}"
        cells = [_spread(here["plain"]), _spread(here["flow"]), refined, _spread(here["used"]), _spread(here["exact"])]
        more = [_spread(theirs["flow"])] if len(theirs) else ["–"] * bool(len(published))
        rows.append([f"{point.lam:.2g}", f"{point.q:g}", f"{point.temperature:g}", *cells, *more])
    header += ["published architecture"] * bool(len(published))
    return f"""### Flow and exact sampler

![Quantile errors at all points](assets/results/toy/agreement.png)

Mean error of the 5, 50 and 95 % quantiles of all entries, in posterior standard deviations, against chains of the exact
sampler that start from a Wishart distribution and know nothing of the flow; the sampler's own error is half the
difference between halves of its chains (largest R̂ {agreement["rhat"].max():.3f}). The two {_agree(own)}.

{markdown(header, rows, right=True)}"""


def _said_of_architectures(tables: Tables) -> str:
    fits, agreement, speed = tables["fits"], tables["agreement"], tables.get("speed")
    own, theirs = (
        of_architecture(fits, "structured").set_index("seed"),
        of_architecture(fits, "paper").set_index("seed"),
    )
    text = "### Both architectures\n\n"
    if speed is not None:
        row = speed.iloc[0]
        text += f"""In its published size ({row["num_layers"]:.0f} layers of {row["num_blocks"]:.0f} residual blocks of
{row["width"]:.0f}, {row["num_sigmoids"]:.0f} sigmoids, {row["parameters"] / 1e6:.1f} million parameters in this
package's version) the gradient of one step with {BATCH} draws takes {row["seconds"]:.2g} s here, which makes
{row["budget"] / row["seconds"]:,.0f} steps in the {row["budget"]:.0f} s that each data set gets, instead of the
published 10 000 with 1000 draws each. So it is trained in the package's smaller size: 4 layers of 2 blocks of 128,
8 sigmoids. """
    if theirs.empty:
        return text + "Its fits are not finished."
    pair = agreement.pivot_table(
        index=["seed", "lam", "q", "temperature"], columns="architecture", values=["elbo", "flow"]
    ).dropna()
    warm = pair[pair.index.get_level_values("temperature") == 1]
    deficit = (warm["elbo"]["structured"] - warm["elbo"]["paper"]).groupby("seed").mean()
    rmse, their_rmse = (rmse_of(tables["recovery"], name) for name in ("structured", "paper"))
    worse = (their_rmse - rmse).dropna()
    further = (warm["flow"]["paper"] - warm["flow"]["structured"]).groupby("seed").mean()
    rows = [
        ["steps", f"{own['steps'].mean():.0f}", f"{theirs['steps'].mean():.0f}", ""],
        ["seconds of training", _spread(own["seconds"], ".0f"), _spread(theirs["seconds"], ".0f"), ""],
        ["RMSE, lowest temperature", _spread(rmse), _spread(their_rmse), _difference(worse, ".3f")],
        [
            "quantile error, T = 1, sd",
            _spread(warm["flow"]["structured"].groupby("seed").mean()),
            _spread(warm["flow"]["paper"].groupby("seed").mean()),
            _difference(further, ".3f"),
        ],
        ["ELBO below the structured flow's, T = 1, nats", "0", _spread(deficit, ".2f"), _difference(deficit, ".2f")],
        [
            "λ of the published quantity",
            _spread(own["lam_published"], ".2f"),
            _spread(theirs["lam_published"], ".2f"),
            _difference((theirs["lam_published"] - own["lam_published"]).dropna(), ".2f"),
        ],
    ]
    below = int((their_rmse < PUBLISHED_RMSE).sum())
    return f"""{text}It is cooled as published, from T = 5 to the lowest temperature in 100 stages, so that T = 1 is
reached after about a quarter of the steps; it knows these two temperatures only. Differences are paired over data sets,
with the 95 % t interval of their mean. Both ELBOs refer to the same target: their difference is one of KL divergences.

{markdown(["", "structured flow", "published architecture", "difference"], rows, right=True)}

After this training the published architecture is below the published {PUBLISHED_RMSE:g} on {below} of {len(theirs)}
data sets. Its ELBO is {_sign(deficit, "lower than", "higher than", "not clearly different from")} that of the
structured flow, its quantiles are {_sign(further, "further from", "closer to", "not clearly closer to")} the exact
sampler's, and its RMSE is {_sign(worse, "larger", "smaller", "not clearly different")}."""


def _spread(values: Frame, digits: str = ".3f") -> str:
    """Mean ± standard deviation over data sets."""
    mean = format(values.mean(), digits)
    return f"{mean} ± {format(values.std(), digits)}" if len(values) > 1 else mean


def _same_choice(selection: Frame) -> str:
    _, low, high = log_ratio(selection)
    if low > 0:
        return "evidence chooses larger λ than cross-validation"
    if high < 0:
        return "evidence chooses smaller λ than cross-validation"
    return "neither chooses systematically larger λ than the other"


def _within(selection: Frame) -> str:
    columns = {"evidence": selection["lam_evidence"], "cv": selection["lam_cv"]}
    inside = [values.min() <= PUBLISHED_LAM[name] <= values.max() for name, values in columns.items()]
    return "within" if all(inside) else "partly within" if any(inside) else "outside"


def _choice(values: Frame) -> str:
    return f"{_spread(values, '.2f')} ({values.min():.2f} … {values.max():.2f})"


def _agree(agreement: Frame) -> str:
    """Whether what is used in the end is near enough, and how often it had to be refined."""
    points = agreement.groupby(["lam", "q", "temperature"])["used"].mean()
    refined = agreement[agreement["draws"] == "refined"]
    text = f"{len(refined) or 'none'} of {len(agreement)} posteriors were beyond {LIMIT:g} sd and refined"
    if len(refined):
        text += f", from {refined['flow'].mean():.3f} to {refined['used'].mean():.3f} sd in the mean"
    verdict = f"mean errors over data sets reach {points.max():.3f} sd"
    return f"{'agree' if points.max() <= LIMIT else 'do not agree'}: {verdict}; {text}"


def _sign(differences: Frame, positive: str, negative: str, unclear: str) -> str:
    _, low, high = difference(differences)
    return positive if low > 0 else negative if high < 0 else unclear


def _difference(values: Frame, digits: str) -> str:
    mean, low, high = difference(values)
    return f"{format(mean, digits)} ({_range(low, high, digits)})"


def _range(low: float, high: float, digits: str) -> str:
    return f"{format(low, digits)} … {format(high, digits)}" if np.isfinite(high) else "unknown from one data set"
