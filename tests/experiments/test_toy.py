"""The toy experiment in its quick mode; every table holds a number that is found here in another way.

At d = 4 Wishart proposals give exact answers (`Exact`); scikit-learn has a graphical lasso of its own.
Bounds on draws are five standard errors or more: false-alarm rates of a test are below 1e-4.
"""

from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import graphical_lasso as sklearn_lasso

from experiments.paper import reference, reproduce, toy
from experiments.paper.record import LARGEST_FIGURE, read_about
from experiments.paper.toy import jobs, settings
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem
from ggmflow.flow.paper import paper_bijection
from ggmflow.gibbs import sample
from tests.support.models import Exact

QUICK = toy.QUICK
D, N, K, SEEDS = QUICK.n_features, QUICK.n_samples, QUICK.num_lam, len(QUICK.seeds)
POINTS = len(QUICK.checked_lam) * (len(QUICK.checked_q) + 1)
LAMS = np.geomspace(*QUICK.lam_range, K)
BOTH = 2 * SEEDS  # jobs that fit

ROWS = {
    "fits": BOTH,
    "recovery": (BOTH + SEEDS) * K,
    "agreement": BOTH * POINTS,
    "selection": SEEDS,
    "cross_validation": SEEDS * QUICK.num_cv,
    "evidence": SEEDS * K,
    "paths": SEEDS * len(QUICK.mode_q) * K,
    "intervals": 2 * K * D * (D - 1) // 2,
    "across_q": 2 * len(QUICK.entry_q) + 3,
    "modes": None,  # as many as are not zero
    "speed": 1,
}
COLUMNS = {
    "fits": "n_features n_samples architecture steps skipped seconds lam_published seed",
    "recovery": "lam rmse architecture seed",
    "agreement": "architecture lam q temperature elbo ess plain flow used draws exact rhat seed",
    "selection": "lam_evidence lam_cv seed",
    "cross_validation": "lam score seed",
    "evidence": "lam log_evidence se ess khat method published seed",
    "paths": "q lam n_edges kkt_residual start from_lasso seed",
    "intervals": "temperature lam row column true_edge lower median upper lasso draws seed",
    "across_q": "method q lam row column true_edge lower median upper error draws seed",
    "modes": "q lam row column value seed",
    "speed": "num_layers num_blocks width num_sigmoids parameters seconds budget",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def done(directory):
    return reproduce("toy", directory, quick=True, command="test")


@pytest.fixture(scope="module")
def tables(done):
    return done[0]


@pytest.fixture(scope="module")
def scatter():
    return Scatter.from_data(toy_problem(D, N, random_state=QUICK.seeds[0])[0], mean="known")


def first(table, architecture="structured"):
    """Rows of the first data set."""
    table = table[table["seed"] == QUICK.seeds[0]]
    return table[table["architecture"] == architecture] if "architecture" in table else table


def wishart(scatter, lam, q, num_draws=100_000):
    return Exact(SimpleNamespace(query_=np.arange(D), scatter_=scatter), lam, q, 1.0, num_draws)


def other_lasso(emp_cov, rho):
    """scikit-learn leaves the diagonal free."""
    return sklearn_lasso(emp_cov + rho * np.eye(D), rho, tol=1e-7, enet_tol=1e-9, max_iter=1000)[1]


@pytest.mark.slow
def test_every_table_has_its_columns_and_rows(tables):
    assert set(tables) == set(ROWS)
    for name, table in tables.items():
        assert list(table.columns) == ["job", *COLUMNS[name].split()], name
        assert ROWS[name] in (None, len(table)), name
        numbers = table.select_dtypes("number").to_numpy()
        assert np.isfinite(numbers).all() and not table.isna().to_numpy().any(), name


def test_every_seed_has_data_of_its_own_for_both_architectures(monkeypatch):
    """The quick run has one seed only."""
    seen = {}

    class Fitting(Exception):
        pass

    def fit(settings, X, seed, **options):
        seen.setdefault(seed, []).append(X)
        raise Fitting

    monkeypatch.setattr(jobs, "_fit", fit)
    for job in toy.make_jobs(toy.FULL._replace(seeds=toy.FULL.seeds[:3])):
        if job.run.func is not jobs.run_speed:
            with pytest.raises(Fitting):
                job.run()
    assert list(seen) == [0, 1, 2]
    for structured, paper in seen.values():
        np.testing.assert_array_equal(structured, paper)
    assert len(np.unique([tables[0] for tables in seen.values()], axis=0)) == len(seen)


@pytest.mark.slow
def test_nothing_is_done_again(done, directory, monkeypatch):
    names = [job.name for job in toy.make_jobs(QUICK)]
    assert list(read_about(directory / "toy")["seconds"]) == names
    assert [name for name in names if "published architecture" in name] == names[-SEEDS:]
    monkeypatch.setattr(jobs, "toy_problem", lambda *args, **kwargs: pytest.fail("a job was done again"))
    again, _ = reproduce("toy", directory, quick=True)
    for name, table in done[0].items():
        pd.testing.assert_frame_equal(again[name], table)


@pytest.mark.slow
def test_recovery(tables, scatter):
    lasso = np.stack([other_lasso(scatter.emp_cov, lam / N) for lam in LAMS])
    chains = sample(jax.random.key(5), scatter, np.repeat(LAMS, 12), 1.0, QUICK.cold, num_draws=50, num_warmup=50)
    mean = chains.draws.reshape(K, -1, D, D).mean(axis=1)
    rmse = np.sqrt(np.mean((mean - lasso)[:, *np.triu_indices(D, 1)] ** 2, axis=1))
    # An entry has an sd of 0.03 at this temperature, and some hundred draws are effective.
    np.testing.assert_allclose(first(tables["recovery"], "exact")["rmse"], rmse, atol=0.01)
    assert set(tables["recovery"]["architecture"]) == set(settings.SHOWN)


@pytest.mark.slow
def test_fits(tables):
    fits = tables["fits"]
    assert set(fits["architecture"]) == {"structured", "paper"}
    assert (fits["steps"] == QUICK.steps).all() and (fits["seconds"] > 0).all()
    # Close to where a parabola through the published quantity on the same grid is highest.
    for seed, part in tables["evidence"].groupby("seed"):
        x, y = np.log(part["lam"].to_numpy()), part["published"].to_numpy()
        k = int(np.clip(np.argmax(y), 1, K - 2))
        top = np.exp(np.roots(np.polyder(np.polyfit(x[k - 1 : k + 2], y[k - 1 : k + 2], 2)))[0])
        found = fits[(fits["seed"] == seed) & (fits["architecture"] == "structured")]["lam_published"].iloc[0]
        assert found == pytest.approx(top, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("q", QUICK.checked_q)
def test_agreement(tables, scatter, q):
    lam = LAMS[QUICK.checked_lam[1]]
    log_Z = wishart(scatter, lam, q).log_Z
    for architecture, largest_gap in (("structured", 0.5), ("paper", 5.0)):
        found = first(tables["agreement"], architecture)
        row = found[np.isclose(found["lam"], lam) & (found["q"] == q) & (found["temperature"] == 1)].iloc[0]
        assert -0.1 < log_Z - row["elbo"] < largest_gap  # a lower bound, up to the error of a thousand draws
    own = tables["agreement"][tables["agreement"]["architecture"] == "structured"]
    assert ((own["flow"] > reference.LIMIT) == (own["draws"] == "refined")).all()
    # Exact as both are, they differ by the error of two hundred autocorrelated draws.
    assert own.loc[own["draws"] == "refined", "used"].max() < 3 * own["exact"].mean()


@pytest.mark.slow
def test_intervals(tables, scatter):
    table = first(tables["intervals"])
    lam = LAMS[1]
    exact = wishart(scatter, lam, 1.0)
    here = table[np.isclose(table["lam"], lam) & (table["temperature"] == 1)]
    for name, level in (("lower", 0.125), ("median", 0.5), ("upper", 0.875)):
        values = np.zeros((D, D))
        values[here["row"], here["column"]] = here[name]
        np.testing.assert_allclose(exact.cdf(values)[here["row"], here["column"]], level, atol=0.09)
    lasso = other_lasso(scatter.emp_cov, lam / N)
    np.testing.assert_allclose(here["lasso"], lasso[here["row"], here["column"]], atol=1e-4)


@pytest.mark.slow
def test_one_entry(tables, scatter):
    table = tables["across_q"].set_index("method")
    lam, i, j = table["lam"].iloc[0], table["row"].iloc[0], table["column"].iloc[0]
    assert lam == pytest.approx(first(tables["selection"])["lam_evidence"].iloc[0])
    given = table.loc["Bayesian graphical lasso, λ given"]
    exact = wishart(scatter, lam, 1.0)
    for name, level in (("lower", 0.025), ("median", 0.5), ("upper", 0.975)):
        assert exact.cdf(np.full((D, D), given[name]))[i, j] == pytest.approx(level, abs=0.08)
    lasso = table.loc["graphical lasso"]
    assert lasso["lower"] == lasso["upper"] == pytest.approx(other_lasso(scatter.emp_cov, lam / N)[i, j], abs=1e-4)
    # λ | X ∝ Gamma(1, 0.01) p(X | λ), and Z_prior ∝ λ^{−d(d+1)/2} at q = 1.
    grid = np.geomspace(0.1, 60, 40)
    log_Z = np.array([wishart(scatter, each, 1.0, 10_000).log_Z for each in grid])
    log_share = log_Z + D * (D + 1) / 2 * np.log(grid) - 0.01 * grid + np.log(grid)
    share = np.exp(log_share - logsumexp(log_share))
    mean, sd = share @ grid, np.sqrt(share @ grid**2 - (share @ grid) ** 2)
    assert table.loc["Bayesian graphical lasso, λ drawn", "lam"] == pytest.approx(mean, abs=0.35 * sd)


def with_diagonal(off_diagonal, C, rho):
    """The matrix whose diagonal minimizes −log det Ω + tr(Ω(C + ρI)), its other entries given."""

    def objective(x):
        sign, log_det = np.linalg.slogdet(off_diagonal + np.diag(np.exp(x)))
        return np.sum((np.diag(C) + rho) * np.exp(x)) - log_det if sign > 0 else np.inf

    best = minimize(
        objective, np.zeros(D), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13, "maxfev": 9999}
    )
    return off_diagonal + np.diag(np.exp(best.x))


@pytest.mark.slow
def test_modes(tables, scatter):
    modes, paths = first(tables["modes"]), first(tables["paths"])
    C = scatter.emp_cov
    assert set(modes["q"]) == set(QUICK.mode_q)
    for (q, lam), part in modes.groupby(["q", "lam"]):
        known, rho = paths[(paths["q"] == q) & np.isclose(paths["lam"], lam)].iloc[0], lam / N
        i, j, values = (part[name].to_numpy() for name in ("row", "column", "value"))
        assert len(part) == known["n_edges"]
        if q == 1:
            np.testing.assert_allclose(values, other_lasso(C, rho)[i, j], atol=1e-4)
            assert known["from_lasso"] < 1e-6
        else:
            Omega = np.zeros((D, D))
            Omega[i, j] = Omega[j, i] = values
            W = np.linalg.inv(with_diagonal(Omega, C, rho))
            stationary = C[i, j] + rho * q * np.sign(values) * np.abs(values) ** (q - 1)
            np.testing.assert_allclose(W[i, j], stationary, atol=1e-4)


@pytest.mark.slow
def test_evidence_and_choice(tables, scatter):
    table, chosen = first(tables["evidence"]), first(tables["selection"]).iloc[0]
    row = table.iloc[1]
    after, before = (wishart(each, row["lam"], 1.0) for each in (scatter, Scatter.without_data(D)))
    evidence = after.log_Z - before.log_Z - 0.5 * N * D * np.log(2 * np.pi)
    error = np.sqrt(row["se"] ** 2 + after.log_Z_se**2 + before.log_Z_se**2)
    assert abs(row["log_evidence"] - evidence) < 5 * error < 0.5
    top = int(table["log_evidence"].argmax())
    assert LAMS[max(top - 1, 0)] <= chosen["lam_evidence"] <= LAMS[min(top + 1, K - 1)]
    # The published quantity leaves out constants that do not depend on Ω and bounds the rest from below.
    constant = np.sum(np.triu(np.ones((D, D)), 1)) * np.log(row["lam"] / 2)
    assert -0.1 < after.log_Z + constant - row["published"] < 0.5


@pytest.mark.slow
def test_cross_validation(tables):
    X = toy_problem(D, N, random_state=QUICK.seeds[0])[0]
    table, row = first(tables["cross_validation"]), first(tables["cross_validation"]).iloc[3]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    fold, total = np.random.default_rng(0).permutation(N) % 5, 0.0
    for k in range(5):
        train, test = Z[fold != k], Z[fold == k]
        precision = other_lasso(train.T @ train / len(train), row["lam"] / N)
        total += multivariate_normal(np.zeros(D), np.linalg.inv(precision)).logpdf(test).sum()
    assert row["score"] == pytest.approx(total / N + D / 2 * np.log(2 * np.pi), abs=1e-4)
    assert first(tables["selection"])["lam_cv"].iloc[0] == table["lam"].iloc[int(table["score"].argmax())]


@pytest.mark.slow
def test_speed(tables):
    row = tables["speed"].iloc[0]
    size = {name: int(row[name]) for name in ("num_layers", "num_blocks", "width", "num_sigmoids")}
    assert tuple(size.values()) == QUICK.published_size
    leaves = jax.tree.leaves(paper_bijection(jax.random.key(0), D, D, **size))
    assert row["parameters"] == sum(leaf.size for leaf in leaves if getattr(leaf, "dtype", None) == np.float32)
    assert row["seconds"] > 0


@pytest.mark.slow
def test_figures_are_there_and_small(done):
    paths = done[1]
    assert {path.stem for path in paths} == {"intervals", "modes", "across_q", "evidence", "recovery", "agreement"}
    assert all(5_000 < path.stat().st_size < LARGEST_FIGURE for path in paths)


@pytest.mark.slow
def test_figures_without_the_published_architecture(tables):
    """A run that was interrupted before its last jobs can be drawn."""
    some = {name: table[~table["job"].str.contains("published")] for name, table in tables.items() if name != "speed"}
    assert len(toy.figures(some)) == 6
