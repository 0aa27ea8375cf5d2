"""The experiment on edges: its quick mode, and single numbers of it found another way."""

import json
from importlib.util import find_spec

import jax
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, f1_score, matthews_corrcoef

from experiments.paper import edges, reference, reproduce
from experiments.paper.edges import work
from experiments.paper.record import LARGEST_FIGURE
from ggmflow import gibbs
from ggmflow.baselines import bayesian_graphical_lasso, nonconvex_precision
from ggmflow.data.scatter import Scatter
from ggmflow.estimator.graphical_flow import GraphicalFlow

QUICK = edges.QUICK
MAIN = work.Problem("sparse", 5, 15, 0, work.Effort(*QUICK.effort))
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
    X, truth = work.draw(MAIN)
    return X, truth, Scatter.from_data(X)


def pairs(matrix):
    return matrix[np.triu_indices(len(matrix), 1)]


def row(tables, method, **values):
    found = tables["scores"].query("job == @NAME and method == @method")
    for name, value in values.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


# --------------------------------------------------------------------------------------------------------- the tables
def test_tables_have_a_row_for_each_data_set_and_method(tables):
    jobs = [job.name for job in edges.jobs(QUICK)]
    assert tables["data"]["job"].tolist() == jobs
    assert tables["data"].columns.tolist() == ["job", *work.DATA_COLUMNS]
    assert tables["scores"].columns.tolist() == ["job", *work.SCORE_COLUMNS]
    expected = ["job", "choice", "lam", "q", "flow_error", "exact_error", "refined_error", "ess", "khat"]
    assert tables["agreement"].columns.tolist() == expected
    for name, kind in tables["data"].set_index("job")["kind"].items():
        scores = tables["scores"][tables["scores"]["job"] == name]
        conditions = 4 if kind == "published" else 8  # λ of q = 1 at four q; three with their own λ; evidence
        assert np.sum(tables["agreement"]["job"] == name) == conditions
        counts = scores["method"].value_counts().to_dict()
        assert counts.pop("flow") == counts.pop("exact") == conditions and counts.pop("BGL") == 1
        assert counts == ({} if kind == "published" else dict.fromkeys(work.PENALTIES, 1) | {"lasso": 2})


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


def test_truth_is_what_simulation_gives(tables, data):
    _, truth, _ = data
    graph = nx.from_numpy_array(truth != 0)
    graph.remove_edges_from(nx.selfloop_edges(graph))
    about = tables["data"].set_index("job").loc[NAME]
    assert (about["edges"], about["pairs"], about["n"]) == (graph.number_of_edges(), 10, 15)
    inverse = np.linalg.inv(np.linalg.inv(truth))
    strength = np.abs(pairs(inverse / np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))))
    assert about["strong_edges"] == np.sum(strength > 0.1)
    truths = [work.draw(MAIN._replace(truth=k))[1] for k in range(10)]
    assert len({truth.tobytes() for truth in truths}) == 10  # truly different


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


def test_nothing_is_done_twice(made, directory, monkeypatch):
    tables, _ = made

    def refuse(*arguments):
        raise AssertionError("a finished job was done again")

    monkeypatch.setattr(work, "measure", refuse)
    again, _ = reproduce("edges", directory, quick=True)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table)


# ------------------------------------------------------------------------------------------------- pictures and words
def test_figures_are_there_and_small(made):
    _, paths = made
    assert {path.stem for path in paths} == {"f1", "ranking", "published", "agreement", "other_graphs"}
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG") and 5_000 < path.stat().st_size < LARGEST_FIGURE


def test_the_section_holds_the_numbers(tables):
    text = edges.section(tables)
    assert text.startswith("## Edges\n")
    for name in ("f1", "ranking", "published", "agreement", "other_graphs"):
        assert text.count(f"](assets/results/edges/{name}.png)") == 1
    main = tables["data"].query("kind == 'sparse' and n == 15")["job"]
    of_selo = tables["scores"][tables["scores"]["job"].isin(main) & (tables["scores"]["method"] == "selo")]
    mean, se = of_selo["f1"].mean(), of_selo["f1"].std() / np.sqrt(len(of_selo))
    assert f"| selo | {mean:.3f} ± {se:.3f} ({of_selo['mcc'].mean():.2f}) |" in text
    for published in ("0.47", "0.56", "0.37", "0.48"):
        assert f"| {published} |" in text
    assert f"{tables['agreement']['flow_error'].mean():.3f} for the flow as it is" in text
    assert "nan" not in text and "{" not in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "!"))) <= 120


def test_verdicts(tables):
    table = edges.verdicts(tables)
    assert table.columns.tolist() == ["what", "published", "ours", "verdict"]
    assert table.map(lambda cell: isinstance(cell, str) and cell != "").all(axis=None)
    assert table["published"].tolist()[:4] == ["0.47", "0.56", "0.37", "0.48"]
    f1 = tables["scores"].merge(tables["data"][["job", "kind", "n"]]).query("kind == 'published' and n == 15")
    flow = f1.query("method == 'flow' and q == 0.25")["f1_published"].mean()
    assert table["ours"][0].startswith(f"{flow:.2f} ± ")


def with_difference(tables, better):
    """Tables of five truths in which the first method is clearly better at every n, or all are equal."""
    rows, known = [], []
    for name, about in tables["data"].set_index("job").iterrows():
        for k in range(5 if about["kind"] == "sparse" else 1):
            scores = tables["scores"].query("job == @name").copy()
            for measure in ("f1", "mcc", "average_precision"):
                scores[measure] = 0.3 + 0.01 * k + 0.2 * (scores["method"] == better)
            rows.append(scores.assign(job=f"{name} {k}"))
            known.append(about.to_frame().T.assign(job=f"{name} {k}", truth=f"{about['truth']}{k}"))
    return tables | {"scores": pd.concat(rows), "data": pd.concat(known, ignore_index=True)}


def test_words_follow_the_numbers(tables):
    text, verdicts = edges.section(with_difference(tables, "atan")), edges.verdicts(with_difference(tables, "atan"))
    after = text.split("in F1, against the methods without a flow:")[1]
    assert (
        "\n| 15 | atan | Bayesian graphical lasso, selo, " in after and ", graphical lasso (EBIC) | none |\n" in after
    )
    assert verdicts["verdict"].tolist()[6] == "lower at n = 15, 25"
    text, verdicts = edges.section(with_difference(tables, "flow")), edges.verdicts(with_difference(tables, "flow"))
    assert "\n| 15 | none | none | Bayesian graphical lasso, atan, selo" in text
    assert verdicts["verdict"].tolist()[4:7] == ["not told apart at n = 15, 25", *["higher at n = 15, 25"] * 2]


def test_networks_get_rows_of_their_own(tables):
    known = tables["data"].replace({"kind": {"band": "ecoli70"}})
    text = edges.section(tables | {"data": known})
    assert "| ecoli70 | 5 | 15 | 1 | 4 of 10 |" in text
    without = known[known["kind"] != "ecoli70"]
    fewer = {name: table[table["job"].isin(without["job"])] for name, table in tables.items()}
    assert "known networks" not in edges.section(fewer) and "other_graphs" not in edges.figures(fewer)


# --------------------------------------------------------------------------------------------------------- the pieces
def test_full_settings_begin_with_the_main_comparison_and_end_with_networks():
    jobs = [job.name for job in edges.jobs(edges.FULL)]
    assert len(set(jobs)) == len(jobs) and jobs[:2] == ["sparse n=15 #0", "sparse n=15 #1"]
    assert jobs[39] == "sparse n=45 #9" and jobs[40].startswith("published") and jobs[-1].startswith("arth150")
    assert json.loads(json.dumps(edges.FULL._asdict())) == json.loads(json.dumps(edges.FULL._asdict()))


@pytest.mark.skipif(find_spec("pgmpy") is None, reason="the files come with pgmpy")
def test_rows_of_a_network():
    X, truth = work.draw(MAIN._replace(kind="ecoli70", n=20_000))
    assert X.shape == (20_000, 46) and np.count_nonzero(np.triu(truth, 1)) == 84
    # Six standard errors of a correlation.
    np.testing.assert_allclose(np.cov(X.T), np.linalg.inv(truth), atol=6 * np.sqrt(2 / 20_000))


def test_a_penalty_without_a_solution_is_left_out(data, monkeypatch):
    X, _, scatter = data

    def solve(emp_cov, n, penalty, **options):
        if penalty == "scad":
            raise ValueError("no rho has a solution")
        return nonconvex_precision(emp_cov, n, penalty, **options)

    monkeypatch.setattr(work, "nonconvex_precision", solve)
    names = [name for name, *_ in work.estimates(X, scatter, QUICK)]
    assert names == [*(each for each in work.PENALTIES if each != "scad"), "lasso", "lasso"]
