"""What is said of edges, from the tables."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from experiments.paper.choice import FOLDS
from experiments.paper.edges.figures import other_kinds, published_values
from experiments.paper.edges.summary import (
    BGL,
    EVIDENCE,
    agreement_labelled,
    exponent,
    labelled,
    mean_se,
    methods,
    spread,
)
from experiments.paper.edges.work import FULL, HYPERPRIOR, THIN, WEAK
from experiments.paper.reference import LIMIT
from experiments.paper.text import Difference, Frame, Tables, difference, filled, markdown
from ggmflow.posterior.weights import khat_limit
from ggmflow.train.settings import default_settings

NEAR = 0.02  # as closely as a figure can be read
LARGEST_KHAT = khat_limit(FULL.error_draws)


def verdicts(tables: Tables) -> pd.DataFrame:
    """Published numbers and expectations beside ours; columns what, published, ours, verdict."""
    frame = labelled(tables)
    seen, rows = methods(frame), []
    for label, values in published_values(frame).items():
        for n, value in values.items():
            ours = [mean_se(spread(frame, "f1_published", kind)[label].loc[n]) for kind in ("published", "sparse")]
            told = "; ".join(f"{mean:.2f} ± {se:.2f}" for mean, se in ours)
            what = f"edges: F1, diagonal counted, n = {n}, {label if label == BGL else f'flow at {label}'}"
            rows.append((what, f"{value:.2f}", f"{told} (published matrix; different ones)", _near(value, *ours[0])))
    f1, ap = spread(frame, "f1"), spread(frame, "average_precision")
    counts = list(f1.index.unique("n"))
    best, best_ranking = (wide[seen.penalties].groupby("n").mean().idxmax(axis=1) for wide in (f1, ap))
    claims = [
        (f"F1 over pairs, 90 % interval, {seen.smallest} minus q = 1, same λ", f1, seen.smallest, "q = 1"),
        (f"F1 over pairs, 90 % interval, {seen.smallest} minus {BGL}", f1, seen.smallest, BGL),
        (f"F1 over pairs, 90 % interval, {seen.smallest} minus best penalty", f1, seen.smallest, best),
        ("F1 over pairs, default rule by evidence minus best penalty", _with_default(frame), "", best),
        ("average precision by evidence minus best penalty", ap, EVIDENCE, best_ranking),
    ]
    for what, wide, label, others in claims:
        same = isinstance(others, str)
        other = dict.fromkeys(counts, others) if same else others.to_dict()
        gaps = {n: difference(wide.loc[n, label] - wide.loc[n, other[n]]) for n in counts}
        named = {n: "" if same else f" ({other[n]})" for n in counts}
        ours = "; ".join(f"n = {n}: {each.mean:+.3f}{named[n]}" for n, each in gaps.items())
        rows.append((f"edges: {what}", "–", ours, _by_sign(gaps, _VERDICT)))
    errors = agreement_labelled(tables)
    mean, refined = errors["used"].mean(), errors["refined_error"].notna()
    ours = f"{errors['flow_error'].mean():.3f} for the flow; {mean:.3f} with {refined.sum()} of {len(errors)} refined"
    above = int((errors["used"] > LIMIT).sum())
    verdict = (
        f"mean {'within' if mean <= LIMIT else 'above'} {LIMIT:g}, {above} single ones above; "
        f"exact sampler's own: {errors['exact_error'].mean():.3f}"
    )
    rows.append(("edges: quantile error against the exact sampler, in sd", "–", ours, verdict))
    return pd.DataFrame(rows, columns=["what", "published", "ours", "verdict"])


_VERDICT = {1: "higher", 0: "not told apart", -1: "lower"}


def _near(value: float, mean: float, se: float) -> str:
    """How a published number, read off a figure, compares with ours."""
    if abs(mean - value) <= max(2 * se, NEAR):
        return "agrees"
    return f"{'higher' if mean > value else 'lower'} by {abs(mean - value):.2f}"


def _by_sign(gaps: Mapping[int, Difference], words: Mapping[int, str]) -> str:
    """For each sign of a difference its word, with the n at which it is."""
    found = {sign: ", ".join(str(n) for n, each in gaps.items() if each.sign == sign) for sign in words}
    return "; ".join(f"{words[sign]} at n = {at}" for sign, at in found.items() if at)


def _with_default(frame: Frame) -> Frame:
    """F1, with the default rule at the λ and q of highest evidence in a column without a name."""
    return spread(frame, "f1").assign(**{"": spread(frame, "f1_default")[EVIDENCE]})


def section(tables: Tables) -> str:
    """The part of the page of results on edges."""
    frame = labelled(tables)
    parts = [_what_was_done(tables), _said_of_published(frame), _said_of_f1(frame), _said_of_ranking(frame)]
    parts += [_said_of_default(frame), _said_of_lam(frame, tables["data"]), _said_of_others(frame)]
    parts.append(_said_of_agreement(frame, agreement_labelled(tables)))
    return "\n\n".join(filled(paragraph) for part in parts for paragraph in part.strip().split("\n\n") if paragraph)


def _what_was_done(tables: Tables) -> str:
    data = tables["data"]
    main, published = data[data["kind"] == "sparse"], data[data["kind"] == "published"]
    share, d, steps = 100 * main["edges"] / main["pairs"], int(main["d"].iloc[0]), int(main["steps"].iloc[0])
    rows = ", ".join(map(str, sorted(main["n"].unique())))
    usual = default_settings(d * (d + 1) // 2, False).steps
    kept = int(main["lasso_draws"].iloc[0])
    return f"""## Edges

Who finds the edges of a graph? {main["truth"].nunique()} different precision matrices of {d} variables by the paper's
recipe (`simulate.sparse_precision`; it is the Cholesky factor that has 90 % zeros, so {share.min():.0f} to
{share.max():.0f} % of all pairs are edges, {main["edges"].mean():.0f} of {main["pairs"].iloc[0]} on average), n =
{rows} rows from each, one flow for each data set, trained for {steps} steps (the default is {usual}) at T = 1. The
published code drew all its data sets from one matrix and counted the diagonal of Ω, which is never zero, as edges. Here
F1 is over pairs of different variables. The published way of counting has a table of its own, for new data from the
published matrix ({published["truth"].nunique()} sets for each n) and for the different matrices.

A posterior calls a pair an edge if its 90 % credible interval excludes zero (the paper's rule), or by the package's
[default rule](posterior.md). λ is chosen in three ways: by the published criterion at q = 1, and that λ then used at
every q, as the published code does ("q = 0.5"); by that criterion at each q ("q = 0.5, own λ"); together with q by
evidence. The exact sampler runs at the same (λ, q). Penalties choose their level by BIC, the default of GGMncv, the
graphical lasso by {FOLDS}-fold cross-validation and by EBIC with γ = 0.5. The Bayesian graphical lasso draws λ too,
with the published hyperprior Gamma({HYPERPRIOR[0]:g}, rate {HYPERPRIOR[1]:g}): {kept} sweeps of burn-in, then
{kept} draws, {THIN} sweeps apart. ± is a standard error over data sets, brackets are 95 % t intervals of paired
differences, uncorrected for their number."""


def _table(frame: Frame, measure: str, labels: Sequence[str], beside: str | None = None) -> str:
    """Means over data sets of the main comparison, a row for each method, a column for each n; † if refined."""
    wide, other = spread(frame, measure), spread(frame, beside or measure)
    counts = wide.index.unique("n")
    refined = set(frame.loc[(frame["kind"] == "sparse") & frame["refined"], "label"])
    rows = []
    for label in labels:
        cells = [f"{label}{' †' if label in refined else ''}"]
        for n in counts:
            (mean, se), extra = mean_se(wide.loc[n, label]), mean_se(other.loc[n, label])[0]
            cells.append(f"{mean:.3f} ± {se:.3f}{f' ({extra:.2f})' if beside else ''}")
        rows.append(cells)
    return markdown(["", *(f"n = {n}" for n in counts)], rows)


def _differences(wide: Frame, label: str, name: str, others: Sequence[str]) -> str:
    """A table of paired differences of one method from others, n by n."""
    counts = wide.index.unique("n")
    rows = [[other, *(str(difference(wide.loc[n, label] - wide.loc[n, other])) for n in counts)] for other in others]
    return markdown([f"{name} minus", *(f"n = {n}" for n in counts)], rows)


def _standing(wide: Frame, label: str, others: Sequence[str]) -> str:
    """A table, n by n: which of the others are above and below a method, as far as paired differences tell."""
    rows = []
    for n in wide.index.unique("n"):
        signs = {other: difference(wide.loc[n, other] - wide.loc[n, label]).sign for other in others}
        groups = [", ".join(other for other in others if signs[other] == sign) for sign in (1, 0, -1)]
        rows.append([str(n), *(group or "none" for group in groups)])
    return markdown(["n", "above it", "not told apart", "below it"], rows)


def _said_of_published(frame: Frame) -> str:
    seen, main = methods(frame), frame[frame["kind"] == "sparse"].drop_duplicates("job")
    values, rows = published_values(frame), []
    theirs, ours = (spread(frame, "f1_published", kind) for kind in ("published", "sparse"))
    for n in ours.index.unique("n"):
        for label, known in values.items():
            cells = ["{:.3f} ± {:.3f}".format(*mean_se(wide.loc[n, label])) for wide in (theirs, ours)]
            rows.append([str(n), label, f"{known[n]:.2f}" if n in known else "–", *cells])
    gaps = {n: difference(theirs.loc[n, seen.smallest] - theirs.loc[n, BGL]) for n in theirs.index.unique("n")}
    over_pairs = spread(frame, "f1", "published")
    worth = [f"{over_pairs.loc[over_pairs.index[0][0], label].mean():.2f}" for label in values]
    empty = (main["d"] / (main["d"] + main["edges"])).mean()
    return f"""### As published: the diagonal counted

{markdown(["n", "", "published", "ours, the published matrix", "ours, different matrices"], rows)}

The published values are read off a figure; "agrees" in the table at the top means within {NEAR:g} or two standard
errors of ours on the published matrix. The published code chose λ at q = 1, had no factor for the diagonal of Ω in
its prior (ours has exp(−½λ tr Ω), as the paper writes it), and took the Bayesian graphical lasso from another package;
of its data sets the flow was scored on four. On the published matrix the flow at {seen.smallest} minus the Bayesian
graphical lasso is {_by_sign(gaps, _VERDICT)}. With the diagonal counted, a graph *without edges* scores {empty:.2f} on
the different matrices. Over pairs, the rows of n = {over_pairs.index[0][0]} on the published matrix are worth
{" and ".join(worth)}.

![F1 with the diagonal counted, published and ours](assets/results/edges/published.png)

All methods counted in this way, different matrices:

{_table(frame, "f1_published", seen.all)}"""


def _said_of_f1(frame: Frame) -> str:
    seen, f1, mcc, n_edges = methods(frame), spread(frame, "f1"), spread(frame, "mcc"), spread(frame, "n_edges")
    main = frame[frame["kind"] == "sparse"].drop_duplicates("job")
    counts, true, pairs = f1.index.unique("n"), main["edges"].mean(), main["pairs"].iloc[0]
    first = counts[0]
    penalties = [label for label in seen.penalties if "lasso" not in label]
    taken = ", ".join(f"{label} {100 * n_edges.loc[first, label].mean() / pairs:.0f} %" for label in penalties)
    found = ", ".join(f"{n_edges.loc[n, seen.smallest].mean():.0f} at n = {n}" for n in counts)
    gaps = {n: difference(f1.loc[n, seen.smallest] - f1.loc[n, "q = 1"]) for n in counts}
    best = f1.loc[first, seen.penalties].mean().idxmax()
    lacking = [f"{label} ({missing})" for label in seen.penalties if (missing := int(f1[label].isna().sum()))]
    unsolved = f" No solution at any level, in so many data sets: {', '.join(lacking)}." if lacking else ""
    refined = (
        "\n\n† Refined draws in some of the data sets; the last table says how many." if frame["refined"].any() else ""
    )
    return f"""### F1 over pairs

90 % intervals, and supports of penalized likelihoods; in parentheses Matthews' correlation, which a large guess does
not raise.{unsolved}

{_table(frame, "f1", seen.all, "mcc")}{refined}

![F1 over pairs of every method](assets/results/edges/f1.png)

{_differences(f1, seen.smallest, seen.smallest, [label for label in seen.all if label != seen.smallest])}

The 90 % interval at {seen.smallest} in F1, against the methods without a flow:

{_standing(f1, seen.smallest, [BGL, *seen.penalties])}

The same in Matthews' correlation:

{_standing(mcc, seen.smallest, [BGL, *seen.penalties])}

Methods differ in how many pairs they call edges. The interval at {seen.smallest} excludes zero for so many pairs on
average: {found}; {true:.0f} of {pairs} are edges. Penalties chosen by BIC take at n = {first}, of all pairs: {taken}.
Taking *every* pair has F1 {2 * true / (true + pairs):.2f}. At n = {first}, {_found(frame, first, seen.smallest)};
{_found(frame, first, best)}, the highest F1 of a penalty.

Sub-l₁ against l₁, same rule and same λ: F1 at {seen.smallest} compared with q = 1 is {_by_sign(gaps, _VERDICT)}."""


def _found(frame: Frame, n: int, label: str) -> str:
    """How many of the pairs that a method calls edges are edges, and how many of the edges it finds, over data sets."""
    rows = frame[(frame["kind"] == "sparse") & (frame["method"] != "exact") & (frame["n"] == n)]
    rows = rows[rows["label"] == label]
    right = (rows["f1"] * (rows["n_edges"] + rows["edges"]) / 2).sum()  # F1 = 2 TP / (called + true)
    precision = f"{100 * right / called:.0f} %" if (called := rows["n_edges"].sum()) else "none"
    return (
        f"of the pairs that {label} calls edges {precision} are, and it finds {100 * right / rows['edges'].sum():.0f} %"
    )


def _said_of_ranking(frame: Frame) -> str:
    seen, ap = methods(frame), spread(frame, "average_precision")
    return f"""### Rankings

A rule decides how many pairs are called edges, a ranking which come first. Average precision compares rankings alone:
posteriors rank by |mean|/sd, as the default rule does, penalized likelihoods by |estimate| at the chosen level, where
all that is zero shares the last place.

{_table(frame, "average_precision", seen.all)}

![Average precision of every method](assets/results/edges/ranking.png)

{_differences(ap, EVIDENCE, EVIDENCE, [BGL, *seen.penalties])}

The ranking at the λ and q of highest evidence, against the penalties:

{_standing(ap, EVIDENCE, seen.penalties)}"""


def _said_of_default(frame: Frame) -> str:
    seen, f1 = methods(frame), _with_default(frame)
    gaps = {n: difference(f1.loc[n, ""] - f1.loc[n, EVIDENCE]) for n in f1.index.unique("n")}
    return f"""### The default rule

The default edge rule asks for the highest expected F1 in a two-group model of the scores |mean|/sd of the same
posteriors. F1 over pairs, in parentheses Matthews' correlation:

{_table(frame, "f1_default", seen.posteriors, "mcc_default")}

At the λ and q of highest evidence its F1, compared with that of the 90 % interval, is {_by_sign(gaps, _VERDICT)}
({"; ".join(f"n = {n}: {each}" for n, each in gaps.items())}). Against it, the penalties:

{_standing(f1, "", seen.penalties)}"""


def _said_of_lam(frame: Frame, data: Frame) -> str:
    main = frame[(frame["kind"] == "sparse") & (frame["method"] == "flow")]
    means = main.groupby("label")[["lam", "q", "n_edges", "f1"]].mean()
    labels = [label for label in methods(frame).posteriors if label in means.index]
    rows = [[label, *(format(means.loc[label, name], form) for name, form in _LAM_FORMATS.items())] for label in labels]
    lowest = min((label for label in labels if "own" in label), key=exponent)
    same, chosen = lowest.removesuffix(", own λ"), main.loc[main["choice"] == "evidence", "q"]
    ends = data.loc[data["kind"] == "sparse", "at_ends"].fillna("").str.split(" and ").explode()
    counted = ", ".join(f"{end} {count}" for end, count in ends[ends != ""].value_counts().items())
    return f"""### How λ is chosen

{markdown(["mean over all n", "λ", "q", "edges by the 90 % interval", "F1 over pairs"], rows)}

The published criterion leaves out the prior's normalizer on the positive definite cone, which depends on q. Maximized
at {same} it takes a λ {means.loc[lowest, "lam"] / means.loc["q = 1", "lam"]:.1f} times that of q = 1, and the 90 %
intervals then exclude zero for {means.loc[lowest, "n_edges"]:.1f} pairs on average; with the λ of q = 1 they do for
{means.loc[same, "n_edges"]:.1f}. The evidence chooses q = {chosen.mean():.2f} ± {chosen.std(ddof=0):.2f} (standard
deviation over data sets); ends of the ranges at which it is highest, of {len(chosen)} fits: {counted or "none"}."""


_LAM_FORMATS = {"lam": ".2f", "q": ".2f", "n_edges": ".1f", "f1": ".3f"}


def _said_of_others(frame: Frame) -> str:
    others = other_kinds(frame)
    if not others:
        return ""
    seen, rows, wins = methods(frame), [], []
    for kind, n in others:
        f1, default, ap = (spread(frame, name, kind).loc[n] for name in ("f1", "f1_default", "average_precision"))
        best, ranked = (wide[seen.penalties].mean().idxmax() for wide in (f1, ap))
        values = [f1["q = 1"], f1[seen.smallest], default[EVIDENCE], f1[BGL], f1[best], ap[EVIDENCE], ap[ranked]]
        interval, by_default, _, penalty, ranking, by_penalty = [each.mean() for each in values[1:]]
        wins.append((interval > penalty, by_default > penalty, ranking > by_penalty))
        cells = [f"{each.mean():.3f}" for each in values]
        cells[4], cells[6] = f"{cells[4]} ({best})", f"{cells[6]} ({ranked})"
        about = frame[(frame["kind"] == kind) & (frame["n"] == n)].drop_duplicates("job")
        edges = f"{about['edges'].mean():.0f} of {about['pairs'].iloc[0]}"
        rows.append([kind, str(about["d"].iloc[0]), str(n), str(len(about)), edges, _percent(about), *cells])
    header = [
        "graph",
        "d",
        "n",
        "sets",
        "edges",
        f"above {WEAK:g}",
        "q = 1",
        seen.smallest,
        "default rule, evidence",
        BGL,
    ]
    header += ["best penalty", "ranking, evidence", "ranking, best penalty"]
    won = np.sum(wins, axis=0)
    trained = frame.loc[~frame["kind"].isin(["sparse", "published"]), "steps"]
    steps = " to ".join(map(str, sorted({int(trained.min()), int(trained.max())})))
    return f"""### Other graphs, known networks

Band, hub and scale-free graphs, and Gaussian Bayesian networks with known parameters (from pgmpy's files): x = Bx + e
gives Ω = (I − B)ᵀD⁻¹(I − B) exactly, and its nonzero entries, the moral graph, are the truth. "Above {WEAK:g}" is the
share of edges whose true partial correlation is larger than that. Then F1 over pairs, of 90 % intervals unless the
column says otherwise, and average precision of rankings. The best penalty is picked with the truth at hand, for each
row anew, which favours it.

{markdown(header, rows)}

![F1 and average precision on other graphs and networks](assets/results/edges/other_graphs.png)

Of {len(wins)} rows, the 90 % interval at {seen.smallest} is above the best penalty in {won[0]}, the default rule in
{won[1]}, and the ranking by evidence above the best ranking of a penalty in {won[2]}. With so few data sets to a row,
single rows prove little. Flows were trained for {steps} steps."""


def _percent(about: Frame) -> str:
    return f"{100 * about['strong_edges'].sum() / about['edges'].sum():.0f} %"


def _said_of_agreement(frame: Frame, errors: Frame) -> str:
    both = frame[frame["method"].isin(["flow", "exact"])]
    f1 = both.pivot_table(index=["label", "job"], columns="method", values="f1")
    rows = []
    for label in [each for each in methods(frame).posteriors if each in set(errors["label"])]:
        at = errors[errors["label"] == label]
        refined = at.loc[at["refined_error"].notna(), "refined_error"]
        cells = [f"{at['flow_error'].mean():.3f}", f"{at['flow_error'].max():.3f}", f"{at['exact_error'].mean():.3f}"]
        cells += [f"{100 * at['ess'].median():.1f} %", f"{(~(at['khat'] < LARGEST_KHAT)).sum()} of {len(at)}"]
        cells += [f"{len(refined)} of {len(at)}", f"{refined.mean():.3f}" if len(refined) else "–"]
        rows.append([label, *cells, str(difference(f1.loc[label, "flow"] - f1.loc[label, "exact"]))])
    header = ["", "flow, mean", "largest", "exact sampler's own", "ESS, median", f"k̂ above {LARGEST_KHAT:.2g}"]
    header += ["refined", "then", "F1, flow minus exact"]
    return f"""### Flow and exact sampler

Mean error of the 5, 50 and 95 % quantiles of all entries of Ω against the exact sampler at the same (λ, q), in
posterior standard deviations, over all data sets. It contains the error of the reference, whose own error is half the
difference between two halves of its chains. Where the flow's error exceeds {LIMIT:g}, its draws start exact chains
of the sampler, and the flow's rows in the tables above rest on those refined draws. ESS and k̂ are what the flow says of
itself: the share of its draws that importance weights make effective, and how heavy the tail of those weights is.

{markdown(header, rows)}

![Quantile errors of the flow and of the exact sampler](assets/results/edges/agreement.png)

Over all {len(errors)} conditions the mean is {errors["flow_error"].mean():.3f} for the flow as it is,
{errors["used"].mean():.3f} for what is used, {errors["exact_error"].mean():.3f} for the exact sampler itself;
{int((errors["used"] > LIMIT).sum())} of what is used are above {LIMIT:g}, {int((errors["beyond"] > LIMIT).sum())}
without the reference's own error, √(error² − own²). {_said_of_worst(errors)}"""


def _said_of_worst(errors: Frame) -> str:
    """Where the draws behind the tables are furthest from the exact sampler."""
    worst = errors.loc[errors["used"].idxmax()]
    where = f"{worst['job'].split(' #')[0]}, λ = {worst['lam']:.2f}, q = {worst['q']:.2f}"
    verdict = "refinement did not mend it, and rows that rest on it should not be trusted"
    return (
        f"The worst is {worst['used']:.2f} ({where}, {worst['label']}), where the exact sampler's own error is "
        f"{worst['exact_error']:.2f}" + (f": {verdict}." if worst["used"] > 5 * LIMIT else ".")
    )
