"""The blanket experiment in its quick mode; every table holds a number that is found here in another way.

Without scikit-survival a simulated table stands in for its study, so that the experiment itself is tested everywhere.
Wishart proposals, whose weights exp(−λΣ|ω|^q) are at most 1, give exact answers for its 8 columns. Bounds on draws are
five standard errors or more: false-alarm rates of a test are below 1e-4.
"""

from importlib.util import find_spec
from itertools import pairwise
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

from experiments.paper import blanket, reproduce
from experiments.paper.blanket import clinical, jobs
from experiments.paper.blanket.jobs import EXPONENTS, QUICK, RULES
from experiments.paper.record import LARGEST_FIGURE, read_about
from ggmflow.baselines import blanket_gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.gibbs import sample
from ggmflow.model.conditions import likely_lam
from ggmflow.model.precision import association
from tests.support.models import skip_training
from tests.support.oracles import log_factor
from tests.support.wishart import log_wishart

STUDY = QUICK.studies[0]
QUERY = list(clinical.STUDIES[STUDY].clinical)
S, T = len(QUERY), QUICK.num_genes
D = S + T
PAIRS = S * (S - 1) // 2 + S * T
ROWS = {
    "studies": 1,
    "evidence": len(EXPONENTS) * QUICK.num_lam,
    "choices": len(EXPONENTS) * len(RULES),
    "points": len(EXPONENTS),
    "chains": len(EXPONENTS) + 1,
    "kaufmann": 1,
    "strongest": len(EXPONENTS) * jobs.STRONGEST,
    "entries": None,  # as many as are worth it
}
COLUMNS = {
    "studies": "study n n_dropped events n_query n_genes entries lam_low lam_high steps seconds evidence_seconds",
    "evidence": "q lam conditional full published se ess method study",
    "choices": "study rule q lam value at_end",
    "points": "study q lam weighted ess khat error largest worst own_error draws refined_error"
    " edges edges_exact edges_both",
    "chains": "study q lam sampler num_chains num_draws sweeps seconds rhat share_above ess_min ess_median",
    "kaufmann": "study q lam error largest own_error exact_error exact_largest exact_own_error",
    "strongest": "row column lower median upper exact_lower exact_median exact_upper study q lam",
    "entries": "row column mean lower upper edge exact_mean exact_lower exact_upper exact_edge study q lam",
}


def simulated(name):
    """A table of the same columns, from a chain in which each variable follows the one before."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, D))
    for j in range(1, D):
        X[:, j] += 0.5 * X[:, j - 1]
    table = pd.DataFrame(X, columns=[*QUERY, *(f"gene{k}" for k in range(T))])
    return clinical.Clinical(table, QUERY, pd.DataFrame({"time": np.ones(150), "event": np.arange(150) % 2}), 0)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The experiment, done once; then the flow it keeps in memory.

    Flows stay as they start: all numbers are compared with exact ones, and the toy experiment trains.
    """
    with pytest.MonkeyPatch.context() as patch:
        skip_training(patch)
        if find_spec("sksurv") is None:
            patch.setattr(clinical, "load", simulated)
        output, told = tmp_path_factory.mktemp("results"), []
        jobs.fitted.cache_clear()
        tables, figures = reproduce("blanket", output, quick=True, command="test", tell=lambda *call: told.append(call))
        fit = jobs.fitted(QUICK, STUDY)
        assert jobs.fitted.cache_info().misses == 1  # one fit served all jobs
        yield SimpleNamespace(tables=tables, figures=figures, output=output, told=told, fit=fit)


@pytest.fixture(scope="module")
def exact(done):
    """The chains of the job at q = 1, run again."""
    key = jax.random.fold_in(jax.random.key(QUICK.seed), 100)
    return sample(key, done.fit.model.scatter_, done.fit.lam[1.0], 1.0, n_query=S, **QUICK.exact._asdict())


def at_one(table):
    return table[table["q"] == 1.0]


# --------------------------------------------------------------------------------------------------------------- tables
@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_tables(done, name):
    table = done.tables[name]
    assert table.columns.tolist() == ["job", *COLUMNS[name].split()]
    if ROWS[name] is not None:
        assert len(table) == ROWS[name]
    numbers = table.select_dtypes("number").drop(columns="refined_error", errors="ignore")
    assert np.isfinite(numbers.to_numpy()).all()
    assert set(table["study"]) == {STUDY}
    assert (done.output / "blanket" / f"{name}.csv").stat().st_size < 300_000


@pytest.mark.slow
def test_no_other_tables(done):
    assert set(done.tables) == set(ROWS)


@pytest.mark.slow
def test_studies(done):
    row, data = done.tables["studies"].iloc[0], jobs.read(QUICK, STUDY)
    scatter = Scatter.from_data(data.table, mean="known", transform="nonparanormal")
    assert (row["n"], row["n_query"], row["n_genes"]) == (len(data.table), S, T)
    assert row["entries"] == S + PAIRS
    guess = likely_lam(scatter, np.arange(S))
    np.testing.assert_allclose([row["lam_low"], row["lam_high"]], [guess / 15, 1.25 * guess], rtol=1e-5)
    assert row["steps"] == QUICK.steps


@pytest.mark.slow
def test_evidence_of_the_genes_is_closed_form(done):
    """The evidence of all data minus that of the clinical variables given the genes."""
    scatter, table = done.fit.model.scatter_, done.tables["evidence"]
    S_22, n = scatter.matrix[S:, S:], scatter.n
    for lam, difference in zip(table["lam"], table["full"] - table["conditional"], strict=True):
        genes = (
            log_wishart(n, S_22 + lam * np.eye(T)) - log_wishart(0, lam * np.eye(T)) - 0.5 * n * T * np.log(2 * np.pi)
        )
        assert difference == pytest.approx(genes, abs=0.05)  # tables keep six digits


@pytest.mark.slow
def test_evidence_of_all_data_along_lam(done):
    """Differences between neighbouring λ at q = 1, where the prior's normalizer is λ^{−d(d+1)/2}: five standard errors.

    Wishart proposals give the posterior's normalizer; 0.05 is for the six digits of the table. (The prior's constant
    cancels: proposals are too poor for it at d = 8. Tests of the evidence itself have it at smaller d.)
    """
    scatter, table, judged = done.fit.model.scatter_, at_one(done.tables["evidence"]), 0
    n, found = scatter.n, []
    for k, row in enumerate(table.itertuples()):
        Psi = scatter.matrix + row.lam * np.eye(D)
        Omega = stats.wishart(df=n + D + 1, scale=np.linalg.inv(Psi)).rvs(100_000, random_state=k)
        weights = log_factor(Omega, row.lam, 1.0, S)
        value = log_wishart(n, Psi) + logsumexp(weights) - np.log(len(weights)) + 0.5 * D * (D + 1) * np.log(row.lam)
        ess = np.exp(2 * logsumexp(weights) - logsumexp(2 * weights))
        found.append((row.full - value, row.se**2 + 1 / ess, ess))
    for (a, variance_a, ess_a), (b, variance_b, ess_b) in pairwise(found):
        if min(ess_a, ess_b) > 500:  # where the oracle is able to judge
            judged += 1
            assert abs(a - b) < 5 * np.sqrt(variance_a + variance_b) + 0.05
    assert judged >= 2


@pytest.mark.slow
def test_choices_are_tops_of_the_curves(done):
    """No point of the grid is higher, and the top lies between the neighbours of the highest; the same λ are used."""
    for row in done.tables["choices"].itertuples():
        line = done.tables["evidence"].query("q == @row.q")
        k = int(np.argmax(line[row.rule]))
        assert row.value >= line[row.rule].max() - 0.01
        assert line["lam"].iloc[max(k - 1, 0)] <= row.lam <= line["lam"].iloc[min(k + 1, len(line) - 1)]
        assert row.at_end == (k in (0, len(line) - 1))
    chosen = done.tables["choices"].query("rule == 'conditional'").set_index("q")["lam"]
    points = done.tables["points"].set_index("q")["lam"]
    np.testing.assert_allclose(points, chosen[points.index], rtol=1e-5)


@pytest.mark.slow
def test_points_against_other_chains(done):
    """Errors of the flow, from ten times as many chains with other seeds: the old ones' own error apart."""
    row = at_one(done.tables["points"]).iloc[0]
    model, lam = done.fit.model, done.fit.lam[1.0]
    keys, effort = jax.random.split(jax.random.key(77), 10), QUICK.exact._asdict()
    chains = [sample(key, model.scatter_, lam, 1.0, n_query=S, **effort) for key in keys]
    free = np.triu_indices(S, m=D)
    pooled = np.concatenate([each.pooled[:, *free] for each in chains])
    quantiles = np.quantile(pooled, [0.05, 0.5, 0.95], axis=0)
    post = model.posterior(lam, 1.0, num_draws=QUICK.num_draws)
    error = np.mean(np.abs(post.quantile([0.05, 0.5, 0.95])[:, *free] - quantiles) / pooled.std(0))
    # A mean of |a + b| is at most the sum of means of |a| and |b|.
    assert abs(row["error"] - error) < 2 * row["own_error"] + 0.02
    assert row["worst"] in {f"{a} – {b}" for a in QUERY for b in done.fit.data.table.columns}
    assert row["error"] <= row["largest"]
    low, high = np.quantile(pooled, [0.1, 0.9], axis=0)
    # Entries at the edge of being one may be on either side.
    clear = np.sum((low > 0.3 * pooled.std(0)) | (high < -0.3 * pooled.std(0))) - S
    possible = np.sum((low > -0.3 * pooled.std(0)) | (high < 0.3 * pooled.std(0))) - S
    for column in ("edges", "edges_exact"):
        assert clear <= row[column] <= possible
    assert row["edges_both"] <= min(row["edges"], row["edges_exact"]) <= PAIRS


@pytest.mark.slow
def test_chains_are_those_of_the_sampler(done, exact):
    row = at_one(done.tables["chains"]).query("sampler == 'exact'").iloc[0]
    num_chains, num_draws, num_warmup, thin = QUICK.exact
    assert row["sweeps"] == num_warmup + num_draws * thin
    assert exact.draws.shape[:2] == (row["num_chains"], row["num_draws"]) == (num_chains, num_draws)
    assert row["rhat"] == pytest.approx(exact.rhat.max(), rel=1e-4)
    assert row["ess_min"] == pytest.approx(exact.ess_bulk.min(), rel=1e-4)


@pytest.mark.slow
def test_kaufmann_beside_the_exact_sampler(done, exact):
    row = done.tables["kaufmann"].iloc[0]
    num_chains, num_draws, burn_in, thin = QUICK.kaufmann
    effort = {"num_chains": num_chains, "num_draws": num_draws, "burn_in": burn_in, "thin": thin}
    chains = blanket_gibbs(done.fit.model.scatter_, QUERY, done.fit.lam[1.0], **effort, random_state=QUICK.seed)
    free = np.triu_indices(S, m=D)
    ours, theirs = (x.pooled[:, *free] for x in (exact, chains))
    difference = np.quantile(ours, [0.05, 0.5, 0.95], axis=0) - np.quantile(theirs, [0.05, 0.5, 0.95], axis=0)
    assert row["exact_error"] == pytest.approx(np.mean(np.abs(difference) / theirs.std(0)), rel=1e-4)
    # And they sample the same: z of all means, |z| < 5.5 of 26, with effective numbers from short chains.
    z = (ours.mean(0) - theirs.mean(0)) / ours.std(0) / np.sqrt(1 / exact.ess_bulk[free] + 1 / chains.ess_bulk[free])
    assert np.abs(z).max() < 5.5


@pytest.mark.slow
def test_entries_against_importance_sampling(done):
    """Means of associations at q = 1, by flow and by chains, within 0.25 sd: five errors of 400 effective draws."""
    table, lam = at_one(done.tables["entries"]), done.fit.lam[1.0]
    scatter = done.fit.model.scatter_
    wishart = stats.wishart(df=scatter.n + D + 1, scale=np.linalg.inv(scatter.matrix + lam * np.eye(D)))
    Omega = wishart.rvs(200_000, random_state=0)
    weights = log_factor(Omega, lam, 1.0, S)
    weights = np.exp(weights - logsumexp(weights))
    assert 1 / np.sum(weights**2) > 500  # the oracle must be able to judge
    values = association(Omega[:, :S], np.arange(S))
    mean = np.tensordot(weights, values, 1)
    sd = np.sqrt(np.tensordot(weights, (values - mean) ** 2, 1))
    names = done.fit.data.table.columns
    at = names.get_indexer(table["row"]), names.get_indexer(table["column"])
    assert len(table) >= S * (S - 1) // 2
    assert np.all(at[0] < at[1])
    for column in ("mean", "exact_mean"):
        assert np.max(np.abs(table[column] - mean[at]) / sd[at]) < 0.25
    excluded = (table["lower"] > 0) | (table["upper"] < 0)
    np.testing.assert_array_equal(table["edge"], excluded)


@pytest.mark.slow
def test_strongest_are_the_largest(done, exact):
    table = at_one(done.tables["strongest"])
    values = association(exact.pooled, np.arange(S))
    names = done.fit.data.table.columns
    at = names.get_indexer(table["row"]), names.get_indexer(table["column"])
    median = np.median(values[:, *at], axis=0)
    np.testing.assert_allclose(table["exact_median"], median, rtol=1e-4)
    assert np.all(np.abs(table["median"] - median) < 0.5 * values[:, *at].std(0))
    # None of the others is larger by more than what short chains and a short fit can be wrong.
    size = np.abs(values.mean(0))
    size[np.tril_indices(S)] = 0
    size[at] = 0
    assert size.max() < np.min(np.abs(median)) + 0.5 * values.std(0).max()


# ------------------------------------------------------------------------------------------------- the run and its page
@pytest.mark.slow
def test_a_second_call_does_nothing(done):
    names = [name for name, seconds in done.told if seconds is None]
    assert names == [job.name for job in blanket.make_jobs(QUICK)]
    again = []
    reproduce("blanket", done.output, quick=True, command="again", tell=lambda *call: again.append(call))
    assert not again
    about = read_about(done.output / "blanket")
    assert about["command"] == "test"
    assert about["settings"]["studies"] == list(QUICK.studies)


@pytest.mark.slow
def test_figures(done):
    names = {"evidence", "agreement", f"network_{STUDY}", "intervals", "across_q"}
    assert {path.stem for path in done.figures} == names
    assert all(1000 < path.stat().st_size < LARGEST_FIGURE for path in done.figures)


@pytest.mark.slow
def test_refined_draws_where_the_flow_is_off(done, monkeypatch):
    """With a limit that no flow meets, a point says that its draws are refined, and how far those are off."""
    monkeypatch.setattr(jobs, "LIMIT", 0.0)
    row = jobs.run_exponent(QUICK, STUDY, 0.9)["points"].iloc[0]
    assert row["draws"] == "refined"
    assert 0 < row["refined_error"] < 0.5
