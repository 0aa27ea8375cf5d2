"""The figure of docs/trust.md: what effective draws, k̂, refinement and the error of the evidence look like.

python -m experiments.trust
"""

import warnings
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import ggmflow as gf
from benchmarks.answers import exact_evidence
from ggmflow.data.simulate import toy_problem

FILE = Path("docs/assets/trust.svg")
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
STEPS = (25, 50, 100, 200, 400)
LEVELS = [0.05, 0.5, 0.95]
LAM, Q = 2.0, 0.5


def draw_weights(ax: Axes, poor: gf.Posterior, good: gf.Posterior) -> None:
    """Importance weights from the largest down, for a poor flow and a good one."""
    styles = ((poor, ORANGE, "--", "published flow, 100 steps"), (good, BLUE, "-", "default flow, 400 steps"))
    for post, colour, style, name in styles:
        weights = post.draws.importance
        assert weights is not None
        ranked = np.sort(weights.values)[::-1] * len(weights.values)
        label = f"{name}:\nk̂ = {weights.khat:.2f}, ESS = {weights.ess:.1%}"
        ax.loglog(np.arange(1, ranked.size + 1), ranked, color=colour, ls=style, label=label)
    ax.axhline(1, color=GREY, lw=0.8)
    ax.set(xlabel="draw, by weight", ylabel="weight, relative to the mean", title="Few draws must not carry all")
    ax.set_ylim(1e-3, None)
    ax.legend(frameon=False, fontsize=8, loc="lower left")


def draw_errors(ax: Axes, errors: dict[str, list[float]], floor: float) -> None:
    """Error of 5, 50 and 95 % quantiles over training."""
    styles = {"plain draws": (ORANGE, "--", "o"), "weighted": (BLUE, "-", "s"), "refined, 50 sweeps": (GREEN, "-", "^")}
    for name, (colour, style, marker) in styles.items():
        ax.loglog(STEPS, errors[name], color=colour, ls=style, marker=marker, ms=4, label=name)
    ax.axhline(floor, color=GREY, lw=0.8)
    ax.text(STEPS[0], floor * 0.8, "grey: 4000 exact draws", va="top", fontsize=8, color=GREY)
    ax.set_xticks(STEPS, [str(step) for step in STEPS])
    ax.set_yticks([0.02, 0.05, 0.1, 0.2], ["0.02", "0.05", "0.1", "0.2"])
    ax.set_ylim(0.014, 0.25)
    ax.minorticks_off()
    ax.set(xlabel="training steps", ylabel="quantile error, posterior sd", title="Weights repair, refinement replaces")
    ax.legend(frameon=False, fontsize=8)


def draw_evidence(ax: Axes) -> None:
    """Evidence from few draws minus brute force, with two standard errors, four variables."""
    X = toy_problem(4, 15, random_state=4)[0]
    model = gf.GraphicalFlow(
        lam=(0.3, 6.0), temperature=1.0, mean="known", steps=200, random_state=0, progress=False
    ).fit(X)
    lams = np.geomspace(0.3, 6.0, 9)
    for q, shift, colour, marker in ((1.0, 0.98, BLUE, "o"), (0.5, 1.02, ORANGE, "s")):
        table = model.evidence(lams, q, num_draws=400)
        exact = [exact_evidence(model.scatter_, lam, q, seed=k)[0] for k, lam in enumerate(lams.tolist())]
        difference, error = table["log_evidence"] - exact, 2 * table["se"]
        style = {"color": colour, "ls": "", "marker": marker, "ms": 4, "capsize": 2}
        ax.errorbar(shift * lams, difference, error, label=f"q = {q:g}", **style)
    ax.axhline(0, color=GREY, lw=0.8)
    ax.set_xscale("log")
    ax.set_xticks([0.3, 1, 3, 6], ["0.3", "1", "3", "6"])
    ax.minorticks_off()
    ax.set(xlabel="λ", ylabel="log evidence − brute force, nats", title="400 draws, ± 2 standard errors")
    ax.legend(frameon=False, fontsize=8)


def main() -> None:
    """Fit, compare with exact chains, draw."""
    warnings.simplefilter("ignore", gf.PoorFitWarning)
    X = toy_problem(10, 10, random_state=0)[0]
    scatter, free = gf.Scatter.from_data(X, mean="known"), np.triu_indices(10)
    chains = gf.gibbs.sample(jax.random.key(0), scatter, LAM, Q, num_chains=64, num_draws=2000, num_warmup=300)
    pooled = chains.draws.reshape(-1, 10, 10)[:, *free]
    truth, sd = np.quantile(pooled, LEVELS, axis=0), pooled.std(axis=0)

    def error(values: np.ndarray) -> float:
        return float(np.mean(np.abs(values - truth) / sd))

    some = pooled[:: len(pooled) // 4000][:4000]
    floor = error(np.quantile(some, LEVELS, axis=0))
    errors: dict[str, list[float]] = {"plain draws": [], "weighted": [], "refined, 50 sweeps": []}
    posts = []
    for steps in STEPS:
        model = gf.GraphicalFlow(
            lam=(0.5, 8.0), temperature=1.0, mean="known", steps=steps, random_state=0, progress=False
        ).fit(X)
        posts.append(model.posterior(LAM, Q))
        for name, weighted in (("plain draws", False), ("weighted", True)):
            errors[name].append(error(posts[-1].quantile(LEVELS, weighted=weighted)[:, *free]))
        errors["refined, 50 sweeps"].append(error(posts[-1].refine(50).quantile(LEVELS)[:, *free]))
    options = {"architecture": "paper", "steps": 100, "random_state": 0, "progress": False}
    poor = gf.GraphicalFlow(lam=(0.5, 8.0), temperature=1.0, mean="known", **options).fit(X)
    with plt.rc_context({"svg.fonttype": "none", "font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "trust"}):
        figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
        draw_weights(axes[0], poor.posterior(LAM, Q), posts[-1])
        draw_errors(axes[1], errors, floor)
        draw_evidence(axes[2])
        for ax in axes:
            ax.spines[["top", "right"]].set_visible(False)
        figure.savefig(FILE, metadata={"Date": None})
    print({name: np.round(values, 3).tolist() for name, values in errors.items()}, round(floor, 3))


if __name__ == "__main__":
    main()
