"""The experiment on edges: its quick mode, and single numbers of it found another way."""

from importlib.util import find_spec

import jax
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, f1_score, matthews_corrcoef

from experiments.paper import edges, reference, reproduce
from experiments.paper.edges import jobs
from experiments.paper.record import LARGEST_FIGURE
from ggmflow import gibbs
from ggmflow.baselines import bayesian_graphical_lasso, nonconvex_precision
from ggmflow.data.scatter import Scatter
from ggmflow.estimator.graphical_flow import GraphicalFlow

QUICK = edges.QUICK
MAIN = jobs.Problem("sparse", 5, 15, 0, jobs.Effort(*QUICK.effort))
NAME = "sparse n=15 #0"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def made(directory):
    return reproduce("edges", directory, quick=True, command="a test")


@pytest.fixture(scope="module")
def tables(made):
    return made[0]


@pytest.fixture(scope="module")
def data():
    X, truth = jobs.draw(MAIN)
    return X, truth, Scatter.from_data(X, mean="known")


def pairs(matrix):
    return matrix[np.triu_indices(len(matrix), 1)]


def row(tables, method, **values):
    found = tables["scores"].query("job == @NAME and method == @method")
    for name, value in values.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


# --------------------------------------------------------------------------------------------------------- the tables
@pytest.mark.slow
def test_tables_have_a_row_for_each_data_set_and_method(tables):
    assert tables["data"]["job"].tolist() == [job.name for job in edges.make_jobs(QUICK)]
    assert tables["data"].columns.tolist() == ["job", *jobs.DATA_COLUMNS]
    assert tables["scores"].columns.tolist() == ["job", *jobs.SCORE_COLUMNS]
    expected = ["job", "choice", "lam", "q", "flow_error", "exact_error", "refined_error", "ess", "khat"]
    assert tables["agreement"].columns.tolist() == expected
    for name, kind in tables["data"].set_index("job")["kind"].items():
        scores = tables["scores"][tables["scores"]["job"] == name]
        conditions = 4 if kind == "published" else 8  # λ of q = 1 at four q; three with their own λ; evidence
        assert np.sum(tables["agreement"]["job"] == name) == conditions
        counts = scores["method"].value_counts().to_dict()
        assert counts.pop("flow") == counts.pop("exact") == conditions and counts.pop("BGL") == 1
        assert counts == ({} if kind == "published" else dict.fromkeys(jobs.PENALTIES, 1) | {"lasso": 2})


@pytest.mark.slow
def test_values_are_finite_and_in_their_ranges(tables):
    scores, agreement = tables["scores"], tables["agreement"]
    for name in ("f1", "f1_published", "average_precision"):
        assert scores[name].between(0, 1).all()
    assert scores["mcc"].between(-1, 1).all() and np.isfinite(scores[["lam", "n_edges"]]).all(axis=None)
    of_posteriors = scores["method"].isin(["flow", "exact", "BGL"])
    assert np.isfinite(scores.loc[of_posteriors, ["q", "n_default", "f1_default", "mcc_default"]]).all(axis=None)
    assert scores.loc[~of_posteriors, "f1_default"].isna().all()
    assert np.isfinite(agreement.drop(columns=["job", "choice", "refined_error"])).all(axis=None)
    # Draws are refined where, and only where, the flow is too far off.
    assert (agreement["refined_error"].notna() == (agreement["flow_error"] > reference.LIMIT)).all()


@pytest.mark.slow
def test_truth_is_what_simulation_gives(tables, data):
    _, truth, _ = data
    graph = nx.from_numpy_array(truth != 0)
    graph.remove_edges_from(nx.selfloop_edges(graph))
    about = tables["data"].set_index("job").loc[NAME]
    assert (about["edges"], about["pairs"], about["n"]) == (graph.number_of_edges(), 10, 15)
    inverse = np.linalg.inv(np.linalg.inv(truth))
    strength = np.abs(pairs(inverse / np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))))
    assert about["strong_edges"] == np.sum(strength > 0.1)
    truths = [jobs.draw(MAIN._replace(truth=k))[1] for k in range(10)]
    assert len({truth.tobytes() for truth in truths}) == 10  # truly different


@pytest.mark.slow
def test_scores_of_a_penalty_found_by_scikit_learn(tables, data):
    _, truth, scatter = data
    result = nonconvex_precision(scatter.matrix / scatter.n, scatter.n, "atan", n_rho=QUICK.num_rho)
    actual, found = pairs(truth) != 0, pairs(result.precision) != 0
    saved = row(tables, "atan")
    assert saved["lam"] == pytest.approx(result.rho * 15, abs=1e-4)
    assert saved["f1"] == pytest.approx(f1_score(actual, found, zero_division=0), abs=1e-4)
    everything = f1_score((truth != 0).ravel(), (result.precision != 0).ravel())  # the diagonal, and all pairs twice
    assert saved["f1_published"] == pytest.approx(everything, abs=1e-4)
    assert saved["mcc"] == pytest.approx(matthews_corrcoef(actual, found), abs=1e-4)
    ranking = average_precision_score(actual, np.abs(pairs(result.precision)))
    assert saved["average_precision"] == pytest.approx(ranking, abs=1e-4)


@pytest.mark.slow
def test_scores_of_the_bayesian_graphical_lasso_from_its_draws(tables, data):
    _, truth, scatter = data
    kept = MAIN.effort.lasso_draws
    lengths = {"num_chains": 1, "num_draws": kept, "num_warmup": kept, "thin": 4}
    chains = bayesian_graphical_lasso(scatter, hyperprior=(1.0, 0.1), **lengths)
    saved = row(tables, "BGL")
    assert saved["lam"] == pytest.approx(chains.lam.mean(), rel=1e-4)
    low, high = np.quantile(chains.draws[0], [0.05, 0.95], axis=0)
    found = (low > 0) | (high < 0)
    assert saved["f1"] == pytest.approx(f1_score(pairs(truth) != 0, pairs(found), zero_division=0), abs=1e-4)
    score = pairs(np.abs(chains.draws[0].mean(axis=0)) / chains.draws[0].std(axis=0))
    assert saved["average_precision"] == pytest.approx(average_precision_score(pairs(truth) != 0, score), abs=1e-4)


@pytest.mark.slow
def test_choice_of_lam_and_error_of_the_flow_found_again(tables, data):
    X, _, scatter = data
    model = GraphicalFlow(temperature=1.0, steps=MAIN.effort.steps, random_state=0, progress=False).fit(X)
    saved = tables["agreement"].query("job == @NAME and choice == 'published' and q == 1").iloc[0]
    # The published criterion on a fine grid, no parabola.
    lams = np.geomspace(*model.lam_range_, 25)
    table = model.evidence(lams, 1.0, normalizer="published", num_draws=QUICK.criterion_draws)
    assert abs(np.log(saved["lam"] / table["lam"][table["log_evidence"].idxmax()])) < 0.35
    # The same exact chains, quantiles by NumPy.
    conditions = tables["agreement"].query("job == @NAME")
    each = MAIN.effort.chains // len(conditions)
    lam, q = conditions[["lam", "q"]].to_numpy().repeat(each, axis=0).T
    lengths = {"num_draws": MAIN.effort.draws, "num_warmup": MAIN.effort.warmup, "thin": MAIN.effort.thin}
    chains = gibbs.sample(jax.random.key(1), scatter, lam, q, **lengths).draws[:each]
    upper = np.triu_indices(5)
    pooled, half, other = (part[:, :, *upper].reshape(-1, 15) for part in (chains, chains[::2], chains[1::2]))
    levels = [0.05, 0.5, 0.95]
    truth, sd = np.quantile(pooled, levels, axis=0), pooled.std(axis=0)
    own = np.mean(np.abs(np.quantile(half, levels, axis=0) - np.quantile(other, levels, axis=0)) / sd) / 2
    assert saved["exact_error"] == pytest.approx(own, rel=0.05)
    post = model.posterior(float(saved["lam"]), 1.0, num_draws=QUICK.error_draws)
    flow = post.quantile(levels, weighted=False)[:, *upper]
    assert saved["flow_error"] == pytest.approx(np.mean(np.abs(flow - truth) / sd), rel=0.1)


@pytest.mark.slow
def test_nothing_is_done_twice(made, directory, monkeypatch):
    tables, _ = made

    def refuse(*arguments):
        raise AssertionError("a finished job was done again")

    monkeypatch.setattr(jobs, "measure", refuse)
    again, _ = reproduce("edges", directory, quick=True)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table)


# ------------------------------------------------------------------------------------------------- the figures
@pytest.mark.slow
def test_figures_are_there_and_small(made):
    _, paths = made
    assert {path.stem for path in paths} == {"f1", "ranking", "published", "agreement", "other_graphs"}
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG") and 5_000 < path.stat().st_size < LARGEST_FIGURE


# --------------------------------------------------------------------------------------------------------- the pieces
@pytest.mark.skipif(find_spec("pgmpy") is None, reason="the files come with pgmpy")
def test_rows_of_a_network():
    X, truth = jobs.draw(MAIN._replace(kind="ecoli70", n=20_000))
    assert X.shape == (20_000, 46) and np.count_nonzero(np.triu(truth, 1)) == 84
    # Six standard errors of a correlation.
    np.testing.assert_allclose(np.cov(X.T), np.linalg.inv(truth), atol=6 * np.sqrt(2 / 20_000))


def test_a_penalty_without_a_solution_is_left_out(data, monkeypatch):
    X, _, scatter = data

    def solve(emp_cov, n, penalty, **options):
        if penalty == "scad":
            raise ValueError("no rho has a solution")
        return nonconvex_precision(emp_cov, n, penalty, **options)

    monkeypatch.setattr(jobs, "nonconvex_precision", solve)
    names = [name for name, *_ in jobs.estimates(X, scatter, QUICK)]
    assert names == [*(each for each in jobs.PENALTIES if each != "scad"), "lasso", "lasso"]
