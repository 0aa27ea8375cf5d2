"""What is said of runtimes, from the tables."""

import numpy as np
import pandas as pd

from experiments.paper.reference import LIMIT
from experiments.paper.runtime import published
from experiments.paper.runtime.numbers import blanket, blanket_ratios, count, exponent, matrices, measured, number
from experiments.paper.runtime.work import (
    CHAINS,
    MIXED,
    NUTS_CHAINS,
    NUTS_LAM,
    PUBLISHED_FLOW_RATE,
    PUBLISHED_GIBBS_DRAWS,
    PUBLISHED_GIBBS_SECONDS,
    PUBLISHED_RATIO,
    PUBLISHED_SIZE,
    Q_RANGE,
    REFINE_SWEEPS,
    WARMUP,
)
from experiments.paper.text import Frame, Tables, between, filled, markdown


def section(tables: Tables) -> str:
    """The part of the page of results."""
    parts = (_opening, _about_sizes, _about_break_even, _about_grids, _about_nuts, _about_published, _about_blanket)
    return "\n\n".join(["## Runtime", *(part(tables) for part in parts)])


def _opening(tables: Tables) -> str:
    wanted = number(float(tables["fits"]["effective"].iloc[0]))
    return filled(
        "What does the whole continuum of (λ, q) cost at T = 1? The flow is fitted once, for the automatic range of λ",
        f"and q from {Q_RANGE[0]:g} to {Q_RANGE[1]:g}, and then gives {wanted} draws at any point. The exact sampler",
        f"is run anew for each point, with its defaults ({CHAINS} chains, {WARMUP} sweeps of warm-up), until the entry",
        f"of Ω that mixes worst has {wanted} effective draws. Data are the toy problem's at several sizes. Fits are",
        "timed in new processes without a cache, so compilation is in them, and is given alone too; all else is timed",
        "after compilation, medians of repeated calls. Exact chains ran at four points of each size, λ at a quarter",
        "and at three quarters of its range (of log λ), q = 0.5 and 1. What a point costs is the mean of the four, and",
        "effective draws are extrapolated from the rate of these chains.",
    )


def _about_sizes(tables: Tables) -> str:
    table = matrices(tables)
    wanted, many = number(float(table["effective"].iloc[0])), int(table["refined_points"].sum())
    rows = [
        {
            "d": f"{row['d']:g}",
            "n": f"{row['n']:g}",
            "λ": f"{row['lam_low']:.2g} – {row['lam_high']:.2g}",
            "fit": _show(row["fit_seconds"]),
            "of it compilation": _show(row["compile_seconds"]),
            "steps": f"{row['steps']:g}",
            "a step": _show(row["step_seconds"]),
            f"{wanted} draws at a point": _show(row["plain"]),
            "draws a second": number(row["draws_per_second"]),
            "quantile error, sd": f"{row['error']:.3f}",
            "points refined": f"{row['refined_points']:g} of 4",
        }
        for row in table.to_dict("records")
    ]
    refined = "It is nowhere larger, so plain draws are counted everywhere."
    if many:
        refined = f"""At {many} points it is larger: there refined draws are counted, {wanted} chains of {REFINE_SWEEPS}
            sweeps, at the cost of so many sweeps of the exact sampler; their error was not measured here."""
    growth = "For exponents of d there are too few sizes."
    if len(table) > 2:
        powers = {
            "the fit with all compilation grows as": "flow_once",
            "a step of training as": "step_seconds",
            "plain draws at a point as": "plain",
            "the exact sampler at a point as": "exact_each",
            "one of its sweeps as": "sweep_seconds",
        }
        powers = [f"{what} d^({exponent(table['d'], table[name])})" for what, name in powers.items()]
        growth = f"""With the number of variables {", ".join(powers)}: least squares of logarithms, ± a standard error.
            Sizes differ in n too, and larger ones are fitted with fewer draws a step."""
    error = filled(
        "The quantile error is that of the flow's plain draws against the exact chains, mean over entries and 5, 50",
        "and 95 % quantiles, without the chains' own (which their halves tell; subtracted in quadrature); of the four",
        f"points the largest. Up to {LIMIT:g}, a convention, a draw counts as an effective one: quantiles of a normal",
        f"distribution from 1000 exact draws would be off by some 0.05. {refined}",
    )
    picture = "![Cost against the number of variables](assets/results/runtime/cost_against_d.png)"
    return "\n\n".join([_markdown(rows), error, picture, filled(growth)])


def _about_break_even(tables: Tables) -> str:
    table = matrices(tables)
    rows = [
        {
            "d": f"{row['d']:g}",
            "exact sampler: a point": _show(row["exact_each"]),
            "of it warm-up": _show(row["warmup"]),
            "effective draws a second": f"{number(row['slowest'])} – {number(row['fastest'])}",
            "largest R̂": f"{row['rhat']:.3f}",
            "flow: a point": _show(row["flow_each"]),
            "**flow wins from**": f"**{count(row['wins'])}**",
            "warm-up not counted": count(row["wins_unwarmed"]),
            "refined everywhere": count(row["wins_refined"]),
        }
        for row in table.to_dict("records")
    ]
    words = []
    for wins, part in ((True, table[np.isfinite(table["wins"])]), (False, table[~np.isfinite(table["wins"])])):
        where = [(count(row["wins"]), f"d = {row['d']:g}") for row in part.to_dict("records")]
        if where and wins:
            words.append(f"The flow wins from k points on, k = {', '.join(f'{k} at {d}' for k, d in where)}.")
            words.append("For fewer points the exact sampler is faster." if (part["wins"] > 1).any() else "")
        elif where:
            words.append(f"At {', '.join(d for _, d in where)} it never wins: a point costs the exact sampler less.")
    ratio = table["exact_each"] / table["flow_each"]
    least, most = _ratio(float(ratio.min())), _ratio(float(ratio.max()))
    words.append(
        f"Once it is fitted, the exact sampler takes {between(least, most)} times as long as the flow at a point."
    )
    cores = [f"{row[name]:.1f}" for name in ("cores", "exact_cores") for row in table.to_dict("records")]
    busy = (table["cores"] / table["exact_cores"]).max()
    fit, sampler = (between(min(part), max(part)) for part in (cores[: len(table)], cores[len(table) :]))
    words.append(f"Fits kept {fit} cores busy, the exact sampler {sampler}.")
    if busy > 1.1:
        words.append(f"If it kept as many busy as the fits, up to {_times(busy)} the points would be needed.")
    exact = table["d"][np.isfinite(table["wins_refined"])]
    if len(exact) == len(table):
        words.append("Even with refined draws at every point, which are exact, it wins in the end.")
    elif len(exact):
        words.append(f"With refined draws at every point, which are exact, it wins at d = {_listed(exact)} only.")
    else:
        words.append("With refined draws at every point it never wins: on average that takes longer than to sample.")
    if len(loose := table["d"][table["rhat"] > MIXED]):
        words.append(
            f"Some entry has R̂ above {MIXED:g} at d = {_listed(loose)}: effective draws are rough there, and the"
            f" slowest of the four points takes {_slowest(tables['points'], loose)} of the exact sampler's time."
        )
    picture = "![Cost against the number of points](assets/results/runtime/cost_against_points.png)"
    return "\n\n".join([_markdown(rows), filled(*words), picture])


def _about_grids(tables: Tables) -> str:
    rows, words, beside, once = [], [], [], matrices(tables).set_index("d")
    for d, part in tables["grids"].groupby("d"):
        rows += [
            {
                "d": f"{d:g}",
                "points": f"{row['points']:g}",
                "flow": _show(row["flow_seconds"]),
                "its draws alone": _show(row["draw_seconds"]),
                "exact sampler": _show(row["exact_seconds"]),
                "its sweeps alone": _show(row["sweep_seconds"]),
                "exact : flow": f"{row['exact_seconds'] / row['flow_seconds']:.2g}",
                "largest R̂": f"{row['largest_rhat']:.3f}",
            }
            for row in part.to_dict("records")
        ]
        names = ("flow_seconds", "draw_seconds", "exact_seconds", "sweep_seconds")
        flow, draws, exact, sweeps = (exponent(part["points"], part[name]) for name in names)
        words.append(
            f"at d = {d:g} as k^({flow}) for the flow (its draws alone as k^({draws})) and as k^({exact}) for the exact"
            f" sampler (its sweeps alone as k^({sweeps}))"
        )
        most = part.nlargest(1, "points").iloc[0]
        ratio = most["sweep_seconds"] / most["points"] / once.loc[d, "exact_each"]
        beside.append(f"{_times(ratio)} at d = {d:g}")
    text = filled(
        "Not extrapolated but done, with plain draws, whose error was not checked here, at all k points of grids over",
        "the whole range, the exact sampler until every point had its effective draws, fit and compilation included:",
    )
    after = filled(
        f"Measured cost grows {'; '.join(words)}. Compared with the mean of the four points above, a point of the",
        f"largest grid takes the exact sampler {', '.join(beside)} as long.",
    )
    return "\n\n".join([text, _markdown(rows), after])


def _about_nuts(tables: Tables) -> str:
    table, found = tables["nuts"], measured(tables["nuts"])
    text = filled(
        f"Effective draws a second of the worst entry at λ = {NUTS_LAM:g}, compilation and warm-up left out for both.",
        f"NUTS runs {NUTS_CHAINS} chains side by side in softplus-Cholesky coordinates from exact draws, the exact",
        f"sampler {CHAINS}.",
    )
    if found.empty:
        parts = [text, filled(f"NUTS was {table['status'].iloc[0]}")]
    else:
        rows = [
            {
                "d": f"{row['d']:g}",
                "q": f"{row['q']:g}",
                "exact sampler": number(row["exact_per_second"]),
                "NUTS": number(row["nuts_per_second"]),
                "exact : NUTS": _ratio(row["exact_per_second"] / row["nuts_per_second"]),
                "R̂ of NUTS": f"{row['nuts_rhat']:.3f}",
                "R̂ of exact": f"{row['exact_rhat']:.3f}",
                "leapfrog steps a draw": f"{row['leapfrog_steps']:.0f}",
                "largest difference of means, sd": f"{row['difference']:.2f}",
            }
            for row in found.to_dict("records")
        ]
        lost = found[found["nuts_rhat"] > MIXED].to_dict("records")
        where = ", ".join(f"d = {row['d']:g} and q = {row['q']:g}" for row in lost)
        verdict = f"R̂ of NUTS is at most {MIXED:g} everywhere."
        if lost:
            verdict = f"NUTS has not mixed at {where} (R̂ above {MIXED:g}): its rate there is not to be relied on."
        parts = [text, _markdown(rows), filled(verdict)]
    return "\n\n".join(["### NumPyro's NUTS", *parts])


def _about_published(tables: Tables) -> str:
    table, found, fits = tables["published"], measured(tables["published"]), matrices(tables)
    text = filled(
        "The published flow, built from flowcon 0.0.4 with torch 2.13.0 in an environment of its own: the toy problem",
        f"d = n = 15, {table['batch'].iloc[0]:g} draws a step. Its 10 000 steps are extrapolated from a few.",
    )
    if found.empty:
        parts = [text, filled(f"It was {table['status'].iloc[0]}.")]
    else:
        rows, words = [], []
        for row in found.to_dict("records"):
            full = published.TRAINING_STEPS * row["seconds_per_step"]
            rows.append(
                {
                    "layers": f"{row['layers']:g}",
                    "parameters": number(row["parameters"]),
                    "a step": _show(row["seconds_per_step"]),
                    "10 000 steps, extrapolated": _show(full),
                    "draws a second": number(row["draws_per_second"]),
                    "cores used": f"{row['cores']:.1f}",
                }
            )
            for fit in fits[fits["d"] == row["d"]].to_dict("records"):
                words.append(
                    f"With {row['layers']:g} layers its training takes {_times(full / fit['fit_seconds'])} as long as"
                    f" the fit of the structured flow ({_show(fit['fit_seconds'])}), or as long as the exact sampler at"
                    f" {_ratio(full / fit['exact_each'])} points; the structured flow then gives"
                    f" {_times(fit['draws_per_second'] / row['draws_per_second'])} as many draws a second."
                )
        parts = [text, _markdown(rows), filled(*words)]
    return "\n\n".join(["### The published architecture", *parts])


def _about_blanket(tables: Tables) -> str:
    (row, points), kaufmann = blanket(tables), tables["kaufmann"]
    rows = []
    for point in points.to_dict("records"):
        same = kaufmann[np.isclose(kaufmann["lam"], point["lam"], rtol=1e-4) & (kaufmann["q"] == point["q"])]
        found = same.iloc[0] if len(same) else None
        rows.append(
            {
                "λ": f"{point['lam']:.3g}",
                "q": f"{point['q']:g}",
                "flow: quantile error, sd": f"{point['flow_error']:.3f}",
                "draws counted": "refined" if point["refined"] else "plain",
                "exact sampler: effective draws a second": number(point["effective_per_second"]),
                "R̂": f"{point['rhat']:.3f}",
                "Kaufmann et al.: 500 draws": "–" if found is None else _show(found["seconds_per_500"]),
                "effective draws a second": "–" if found is None else number(found["effective_per_second"]),
                "R̂ ": "–" if found is None else f"{found['rhat']:.3f}",
            }
        )
    all_draws, effective = map(_ratio, blanket_ratios(tables))
    many, wins = int(points["refined"].sum()), row["wins"]
    size = f"s = {row['s']:g}, t = {row['d'] - row['s']:g}"
    paper = " as in the paper" if size == PUBLISHED_SIZE else f" (the paper's has {PUBLISHED_SIZE})"
    before = filled(
        f"The blanket of {size}{paper}, on simulated data of {row['n']:g} rows. The sampler of Kaufmann et al. (2015),",
        f"which knows q = 1 alone, is `baselines.blanket_gibbs`. The paper has {PUBLISHED_GIBBS_SECONDS:g} s for",
        f"{PUBLISHED_GIBBS_DRAWS} draws of it, and {number(PUBLISHED_FLOW_RATE)} draws a second of the flow on a",
        f"TITAN X, {_times(PUBLISHED_RATIO)} as many.",
    )
    use = f"Its plain draws are within {LIMIT:g} sd at all {len(points)} points."
    if many:
        use = f"At {many} of {len(points)} points its plain draws are more than {LIMIT:g} sd off; refined ones count."
    end = "Its fit included, it takes longer than the exact sampler for any number of points (λ, q)."
    if np.isfinite(wins):
        warmup = 100 * row["warmup"] / row["exact_each"]
        end = f"""Its fit included, it takes less time than the exact sampler from {count(wins)} points (λ, q) on, and
            from {count(row["wins_unwarmed"])} on if warm-up, {warmup:.0f} % of that sampler's time, is not counted."""
    after = filled(
        f"The flow takes {_show(row['fit_seconds'])} to fit, {_show(row['compile_seconds'])} of it compilation, and",
        f"then gives {number(row['draws_per_second'])} independent, approximate draws a second: {all_draws} times",
        f"those of the sampler of Kaufmann et al., and {effective} times its effective ones. {use} {end}",
    )
    picture = "![Draws per second of a blanket](assets/results/runtime/blanket.png)"
    return "\n\n".join(["### The Markov blanket", before, _markdown(rows), picture, after])


def verdicts(tables: Tables) -> pd.DataFrame:
    """Published numbers, ours, and what to make of them."""
    row, table, found = blanket(tables)[0], matrices(tables), measured(tables["published"])
    size = f"s = {row['s']:g}, t = {row['d'] - row['s']:g}"
    seconds, rate, ratio = tables["kaufmann"]["seconds_per_500"].median(), row["draws_per_second"], PUBLISHED_RATIO
    own, finite = blanket_ratios(tables)[0], np.isfinite(table["wins"])
    wins = ", ".join(f"{count(each['wins'])} at d = {each['d']:g}" for each in table.to_dict("records"))
    verdict = "worth it for paths and surfaces; fewer points are better left to the exact sampler"
    if not finite.all():
        verdict = f"the exact sampler wins at {'some sizes' if finite.any() else 'every size'}"
    elif (table["wins"] <= 1).all():
        verdict = "worth it for a single point"
    rows = [
        (
            f"500 draws of the blanket sampler of Kaufmann et al., {size}",
            f"{PUBLISHED_GIBBS_SECONDS:g} s",
            _show(seconds),
            f"{_times(PUBLISHED_GIBBS_SECONDS / seconds)} as fast",
        ),
        (
            f"draws a second of the flow, {size}",
            f"{number(PUBLISHED_FLOW_RATE)}, TITAN X",
            f"{number(rate)}, CPU",
            f"{_times(rate / PUBLISHED_FLOW_RATE)} as many",
        ),
        (
            "the flow's draws a second over that sampler's",
            _ratio(ratio),
            _ratio(own),
            "smaller: that sampler has gained more than the flow" if own < ratio else "at least as large",
        ),
        ("points (λ, q) from which on the flow beats the exact sampler", "not compared", wins, verdict),
    ]
    both = found.merge(table[["d", "fit_seconds"]], on="d").nlargest(1, "layers")
    for each in both.to_dict("records"):
        full = published.TRAINING_STEPS * each["seconds_per_step"]
        times = f"{_times(full / each['fit_seconds'])} as long as fitting the structured flow"
        ours = f"{_show(full)} on a CPU, extrapolated"
        rows.append((f"training the published flow, 10 000 steps, d = {each['d']:g}", "time not stated", ours, times))
    return pd.DataFrame(rows, columns=["what", "published", "ours", "verdict"])


def _markdown(rows: list[dict[str, str]]) -> str:
    return markdown(list(rows[0]), [list(row.values()) for row in rows])


def _show(seconds: float) -> str:
    """Milliseconds to hours, in three digits."""
    for unit, size, below in (("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0)):
        if seconds < below:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 3600)} h"


def _ratio(value: float) -> str:
    """Two digits: timings are not known better."""
    return number(float(f"{value:.2g}"))


def _times(value: float) -> str:
    return f"{_ratio(value)} times"


def _slowest(points: Frame, sizes: Frame) -> str:
    """The share of the slowest point of whole matrices in the exact sampler's time, size by size."""
    shares = []
    for d in sizes:
        own = points[(points["d"] == d) & (points["s"] == d)]
        seconds = own["warmup_seconds"] + own["sampling_seconds"]
        shares.append(f"{100 * seconds.max() / seconds.sum():.0f} %")
    return " and ".join(shares)


def _listed(values: Frame) -> str:
    return ", ".join(f"{value:g}" for value in values)
