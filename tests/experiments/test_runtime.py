"""The runtime experiment in its quick mode; exponents and break-even points from invented tables; its peers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from arviz_stats.base.array import array_stats
from scipy import stats

from experiments.paper import reproduce, runtime
from experiments.paper.record import LARGEST_FIGURE
from experiments.paper.runtime import estimates, fits, jobs, published_flow, settings, timing
from experiments.paper.runtime.nuts import run_nuts
from ggmflow import gibbs
from ggmflow.baselines import blanket_gibbs
from ggmflow.data.scatter import Scatter
from ggmflow.data.simulate import toy_problem

SIZE, BLANKET = runtime.QUICK.sizes[0], runtime.QUICK.blanket


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def done(directory):
    return reproduce("runtime", directory, quick=True, command="test")


@pytest.fixture(scope="module")
def tables(done):
    return done[0]


def scatter_of(size):
    return Scatter.from_data(toy_problem(size.d, size.n, random_state=0)[0], mean="known")


# ------------------------------------------------------------------------------------------------------ the quick mode
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows"), [("fits", 2), ("points", 8), ("grids", 2), ("kaufmann", 2), ("nuts", 1), ("published", 1)]
)
def test_tables_are_complete(tables, name, rows):
    table = tables[name]
    assert len(table) == rows and set(invented()[name]) == set(table.columns) - {"job"}
    if "status" in table and (table["status"] != settings.MEASURED).any():
        assert table["status"].str.startswith("not measured").all()
        return
    numbers = table.select_dtypes("number").drop(columns="compile_seconds" if name == "kaufmann" else [])
    assert np.isfinite(numbers.to_numpy()).all() and (numbers.to_numpy() >= 0).all() == (name != "published")


@pytest.mark.slow
def test_fits(tables):
    whole, blanket = tables["fits"].to_dict("records")
    assert (whole["entries"], blanket["entries"]) == (3 * 4 // 2, 3 + 4)
    for fit in (whole, blanket):
        assert fit["steps"] == 25 and fit["lam_high"] / fit["lam_low"] == pytest.approx(50, rel=1e-4)
        assert 0 < fit["compile_seconds"] < fit["fit_seconds"]
        assert fit["compile_seconds"] + fit["steps"] * fit["step_seconds"] == pytest.approx(
            fit["fit_seconds"], rel=1e-4
        )


@pytest.mark.slow
def test_effective_draws_are_those_of_the_same_chains(tables):
    """The chains again, called directly: ESS and R̂ of the worst entry by the package that computes them."""
    points = tables["points"][tables["points"]["d"] == SIZE.d]
    fit = tables["fits"].iloc[0]
    lam, q = np.repeat(timing.grid((fit["lam_low"], fit["lam_high"]), 2), 4, axis=0).T
    np.testing.assert_allclose(points["lam"], lam[::4], rtol=1e-4)
    assert points["q"].tolist() == q[::4].tolist() == [0.5, 1.0, 0.5, 1.0]
    lam_range = timing.find_lam_range(scatter_of(SIZE), SIZE)  # the table has six digits
    lam, q = np.repeat(timing.grid(lam_range, 2), 4, axis=0).T
    warm = gibbs.sample(jax.random.key(1), scatter_of(SIZE), lam, q, num_draws=50, num_warmup=0)
    options = {"start": warm.draws[:, -1], "num_draws": SIZE.num_draws, "num_warmup": SIZE.num_warmup}
    chains = gibbs.sample(jax.random.key(2), scatter_of(SIZE), lam, q, **options)
    row, col = np.triu_indices(SIZE.d)
    for k, point in enumerate(points.to_dict("records")):
        draws = chains.draws[4 * k : 4 * k + 4][:, :, row, col]
        ess = array_stats.ess(draws, chain_axis=0, draw_axis=1, method="bulk").min()
        rhat = array_stats.rhat(draws, chain_axis=0, draw_axis=1, method="rank").max()
        assert (point["ess"], point["rhat"]) == pytest.approx((ess, rhat), rel=1e-4)
        # 4 chains of so many draws had `ess` effective ones, one after the other in so many seconds.
        seconds = 4 * SIZE.num_draws * fit["sweep_seconds"]
        assert point["effective_per_second"] == pytest.approx(ess / seconds, rel=1e-4)
        assert point["sampling_seconds"] == pytest.approx(runtime.QUICK.effective / ess * seconds, rel=1e-4)
        assert point["warmup_seconds"] == pytest.approx(16 * 500 * fit["sweep_seconds"], rel=1e-4)
        assert point["refined"] == (point["flow_error"] > 0.1)
        assert point["flow_error"] ** 2 == pytest.approx(
            max(0, point["error"] ** 2 - point["own_error"] ** 2), abs=1e-5
        )


@pytest.mark.slow
def test_grids_count_what_is_paid_once(tables):
    grids, fit = tables["grids"], tables["fits"].iloc[0]
    assert grids["points"].tolist() == [1, 4] and (grids["least_ess"] >= runtime.QUICK.effective).all()
    once = grids["flow_seconds"] - grids["draw_seconds"]
    np.testing.assert_allclose(once, fit["fit_seconds"] + fit["draw_compile_seconds"], rtol=1e-4)
    np.testing.assert_allclose(grids["exact_seconds"] - grids["sweep_seconds"], fit["exact_compile_seconds"], rtol=1e-3)


@pytest.mark.slow
def test_kaufmann_is_the_sampler_of_the_baselines(tables):
    num_chains, num_draws, burn_in = runtime.QUICK.kaufmann
    lam = timing.grid(timing.find_lam_range(scatter_of(BLANKET), BLANKET), 2)[0][0]
    lengths = {"num_chains": num_chains, "num_draws": num_draws, "burn_in": burn_in}
    draws = blanket_gibbs(scatter_of(BLANKET), range(BLANKET.s), lam, **lengths).draws
    row = tables["kaufmann"].iloc[0]
    entries = draws.reshape(num_chains, num_draws, -1)
    rhat = array_stats.rhat(entries, chain_axis=0, draw_axis=1, method="rank").max()
    ess = array_stats.ess(entries, chain_axis=0, draw_axis=1, method="bulk").min()
    assert row["rhat"] == pytest.approx(rhat, rel=1e-4)
    assert row["effective_per_second"] / row["draws_per_second"] == pytest.approx(
        ess / (num_chains * num_draws), rel=1e-4
    )
    assert row["seconds_per_500"] * row["draws_per_second"] == pytest.approx(500, rel=1e-4)


@pytest.mark.slow
def test_nuts_has_the_exact_sampler_beside_it(tables):
    row = tables["nuts"].iloc[0]
    scatter = scatter_of(SIZE)
    warm = gibbs.sample(jax.random.key(0), scatter, 2.0, 1.0, num_chains=16, num_draws=50, num_warmup=500)
    exact = gibbs.sample(jax.random.key(1), scatter, 2.0, start=warm.draws[:, -1], num_draws=50, num_warmup=0)
    assert row["exact_rhat"] == pytest.approx(exact.rhat.max(), rel=1e-4)
    assert row["status"] == settings.MEASURED or "pip install numpyro" in row["status"]


@pytest.mark.slow
def test_published_flow_is_left_out(tables):
    row = tables["published"].iloc[0]
    assert row["status"] == "not measured in quick mode" and row[["d", "layers", "batch"]].tolist() == [15, 10, 1000]


@pytest.mark.slow
def test_nothing_is_done_again(done, directory):
    told = []
    again, _ = reproduce("runtime", directory, quick=True, tell=lambda *values: told.append(values))
    assert not told
    pd.testing.assert_frame_equal(again["fits"], done[0]["fits"])


@pytest.mark.slow
def test_figures_are_small(done):
    assert sorted(path.stem for path in done[1]) == ["blanket", "cost_against_d", "cost_against_points"]
    assert all(0 < path.stat().st_size < LARGEST_FIGURE for path in done[1])


# -------------------------------------------------------------------------------------- numbers from invented tables
def invented(*, exact=1.0, error=0.05, refine=1.0, nuts_rhat=1.01, kaufmann=1.0):
    """Tables of a full run in which everything is an exact power: fit 2d, draws d²/10⁶, sweeps d³/10⁸ seconds."""
    fits, points = [], []
    for d, n, s in ((15, 15, 15), (30, 25, 30), (60, 40, 60), (100, 60, 100), (318, 190, 6)):
        sweep = exact * d**3 * 1e-8
        fits.append(
            {"d": d, "n": n, "s": s, "entries": 1, "lam_low": 1.0, "lam_high": 50.0, "steps": 800, "cores": 1.8}
            | {"fit_seconds": 2.0 * d, "compile_seconds": 0.5 * d, "step_seconds": d / 1000, "exact_cores": 0.9}
            | {"draw_compile_seconds": 0.0, "draws_per_second": 1e6 / d**2, "exact_compile_seconds": 0.0}
            | {"sweep_seconds": sweep, "effective": 1000}
        )
        for lam, q in timing.grid((1.0, 50.0), 2):
            points.append(
                {"d": d, "s": s, "lam": lam, "q": q, "flow_seconds": d**2 / 1e3, "refined_seconds": refine * sweep}
                | {"warmup_seconds": 8000 * sweep, "sampling_seconds": 12_000 * sweep, "ess": 900.0, "rhat": 1.01}
                | {"effective_per_second": 1 / (12 * sweep), "error": 0.06, "own_error": 0.03, "flow_error": error}
                | {"refined": error > 0.1}
            )
    grids = [
        {"d": d, "points": k, "flow_seconds": 3.0 * k**0.1, "draw_seconds": 0.1 * k, "exact_seconds": 0.5 * k}
        | {"sweep_seconds": 0.4 * k, "least_ess": 1001.0, "largest_rhat": 1.01}
        for d, k in ((15, 1), (15, 4), (15, 16), (30, 1), (30, 4), (30, 9))
    ]
    nuts = [
        {"d": d, "n": n, "lam": 2.0, "q": q, "exact_per_second": 4000.0, "exact_rhat": 1.01, "nuts_per_second": 100.0}
        | {"nuts_rhat": nuts_rhat, "leapfrog_steps": 31.0, "warmup_seconds": 9.0, "difference": 0.1}
        | {"status": "measured"}
        for d, n, q in ((15, 15, 1.0), (15, 15, 0.5), (30, 25, 1.0), (30, 25, 0.5))
    ]
    torch = [
        {"d": 15, "n": 15, "layers": layers, "batch": 1000, "parameters": 3_600_000 * layers, "steps": 9}
        | {"seconds_per_step": 0.3 * layers, "draws_per_second": 8000 / layers, "cores": 1.9, "elbo": -300.0}
        | {"elbo_se": 0.5, "status": "measured"}
        for layers in (10, 4)
    ]
    blanket = [
        {"d": 318, "s": 6, "lam": lam, "q": 1.0, "compile_seconds": 9.0, "seconds_per_500": 2.5 / kaufmann}
        | {"draws_per_second": 200.0 * kaufmann, "effective_per_second": 50.0 * kaufmann, "rhat": 1.01}
        for lam in sorted({lam for lam, _ in timing.grid((1.0, 50.0), 2)})
    ]
    named = {"fits": fits, "points": points, "grids": grids, "nuts": nuts, "published": torch, "kaufmann": blanket}
    return {name: pd.DataFrame(rows) for name, rows in named.items()}


def test_exponent_is_that_of_a_regression(rng):
    x, y = np.array([15, 30, 60, 100]), np.array([2.0, 9.0, 31.0, 110.0])
    known = stats.linregress(np.log(x), np.log(y))
    assert estimates.exponent(x, y) == pytest.approx((known.slope, known.stderr))
    assert str(estimates.exponent(x, 3.0 * x**2.5)) == "2.50 ± 0.00"
    assert str(estimates.exponent(x[:2], x[:2])) == "1.00"  # no freedom left for an error
    assert np.isnan(estimates.exponent([15], [1.0]).value)


@pytest.mark.parametrize("costs", [(30.0, 0.1, 4.0, 1.3), (30.0, 0.1, 4.0, 0.12), (3.0, 0.5, 4.0, 0.6), (8, 1, 0, 5)])
def test_break_even_by_counting(costs):
    once, each, exact_once, exact_each = costs
    wins = estimates.break_even(*costs)
    assert wins == next(k for k in range(1, 10_000) if once + k * each < exact_once + k * exact_each)


def test_break_even_may_not_exist():
    assert estimates.break_even(10.0, 1.0, 0.0, 1.0) == np.inf


def test_costs_follow_the_rule_of_refinement():
    table = estimates.costs(invented())
    d = table["d"].to_numpy(float)
    np.testing.assert_allclose(table["flow_each"], d**2 / 1e3)
    np.testing.assert_allclose(table["exact_each"], 20_000 * d**3 * 1e-8)
    assert (table["refined_points"] == 0).all()
    refined = estimates.costs(invented(error=0.12, refine=1000.0))
    np.testing.assert_allclose(refined["flow_each"], d**2 / 1e3 + 1000 * d**3 * 1e-8)
    assert (refined["refined_points"] == 4).all()


def test_figures_of_a_full_run_have_a_panel_for_each_size():
    found = runtime.figures(invented())
    assert len(found["cost_against_points"].axes) == 4 and len(found["cost_against_d"].axes) == 2
    texts = [text.get_text() for text in found["cost_against_d"].axes[0].get_legend().get_texts()]
    assert texts[0] == "flow: fit, once, ∝ d^(1.00 ± 0.00)"


# -------------------------------------------------------------------------------------- fresh fits
def test_a_fresh_fit_runs_in_a_new_process_without_cache(monkeypatch, tmp_path):
    calls = []

    def run(command, check):
        assert check and os.environ["GGMFLOW_CACHE"] == "off" and command[0] == sys.executable
        folder = Path(command[3])
        calls.append(json.loads(command[4]))
        (folder / "fit.json").write_text('{"seconds": 2.0}', encoding="utf-8")

    monkeypatch.setenv("GGMFLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(fits.GraphicalFlow, "load", lambda path: path.name)
    with fits.cache_off(True):
        model, report = fits.timed_fit(runtime.FULL, runtime.FULL.blanket)
    assert (model, report) == ("model.ggmflow", {"seconds": 2.0})
    assert calls == [{"d": 318, "n": 190, "s": 6, "steps": None}] and os.environ["GGMFLOW_CACHE"] == str(tmp_path)


@pytest.mark.slow
def test_the_code_of_the_new_process_runs():
    """Up to the request, which is not one: fitting is done by the other tests."""
    answer = subprocess.run([sys.executable, "-c", fits.CHILD, ".", "?"], capture_output=True, text=True)
    assert answer.returncode == 1 and "JSONDecodeError" in answer.stderr


# -------------------------------------------------------------------------------------- peers
@pytest.mark.slow
def test_without_numpyro_a_row_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro.infer", None)
    row = jobs.run_against_nuts(SIZE.d, SIZE.n, 1.0, 10, 10)["nuts"].iloc[0]
    assert row["status"] == "not measured: NumPyro is not installed. Run: pip install numpyro"
    assert np.isnan(row["nuts_rhat"]) and row["exact_per_second"] > 0


def test_nuts_agrees_with_the_exact_sampler():
    pytest.importorskip("numpyro")
    scatter = scatter_of(SIZE)
    exact = gibbs.sample(jax.random.key(0), scatter, 2.0, num_draws=500)
    nuts = run_nuts(scatter, 2.0, 1.0, 200, 200, exact.draws[:4, -1])
    assert nuts.chains.rhat.max() < 1.1 and nuts.seconds > 0 and nuts.steps >= 1
    # Means of about 400 effective draws: 0.3 sd is six standard errors.
    assert np.all(np.abs(exact.pooled.mean(0) - nuts.chains.pooled.mean(0)) < 0.3 * exact.pooled.std(0))


def test_without_an_environment_a_row_says_so(monkeypatch, tmp_path):
    def create(self, directory):
        raise OSError("no space")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(published_flow.Path, "home", lambda: tmp_path)
    monkeypatch.setattr(published_flow.venv.EnvBuilder, "create", create)
    row = jobs.run_against_published(10, 5.0)["published"].iloc[0]
    assert row["status"].startswith("not measured: No virtual environment could be made in ~")
    assert str(tmp_path) not in row["status"] and np.isnan(row["seconds_per_step"])


def test_a_failed_installation_is_told(monkeypatch, tmp_path):
    def run(command, **options):
        return subprocess.CompletedProcess(command, 1, "", "no network")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(published_flow.venv.EnvBuilder, "create", lambda self, directory: None)
    monkeypatch.setattr(subprocess, "run", run)
    told = []
    with pytest.raises(
        published_flow.PublishedFlowError, match=r"pip could not install flowcon==0.0.4(.|\n)*no network"
    ):
        published_flow.environment(told.append)
    assert len(told) == 1 and "torch==2.13.0" in told[0]


def test_measurements_of_the_published_flow_are_kept(monkeypatch):
    known = published_flow.Published(36, 9, 2.5, 800.0, 1.9, 2, -300.0, 0.5)
    monkeypatch.setattr(published_flow, "environment", lambda: (Path("python"), {}))
    monkeypatch.setattr(published_flow, "run_published", lambda python, settings, scatter: known)
    row = jobs.run_against_published(4, 5.0)["published"].iloc[0]
    assert row["status"] == settings.MEASURED and row["layers"] == 4
    assert row[["seconds_per_step", "draws_per_second", "elbo"]].tolist() == [2.5, 800.0, -300.0]


def test_the_process_of_the_published_flow_is_read(monkeypatch, tmp_path):
    """A stand-in without torch writes draws, with a density of its own, and reports as the real file does."""
    script = tmp_path / "stand_in.py"
    script.write_text(
        """
import json, sys
import numpy as np
with np.load(sys.argv[1]) as problem:
    S, n, points = problem["scatter"], problem["n"], problem["points"]
rng = np.random.default_rng(0)
L = np.tril(rng.normal(size=(len(points), 20, *S.shape))) * 0.3 + np.eye(len(S))
Omega = L @ np.swapaxes(L, -1, -2)
i, j = np.tril_indices(len(S), -1)
lam, q = points.T[:, :, None]
penalty = lam * (np.trace(Omega, axis1=-2, axis2=-1) / 2 + np.sum(np.abs(Omega[..., i, j]) ** q[..., None], axis=-1))
log_target = n / 2 * np.linalg.slogdet(Omega)[1] - np.trace(S @ Omega, axis1=-2, axis2=-1) / 2 - penalty
L = np.linalg.cholesky(Omega)
np.save(sys.argv[0] + ".npy", log_target)
np.savez(sys.argv[2], columns=L, log_q=np.zeros(log_target.shape), log_target=log_target)
settings = json.loads(sys.argv[3])
print(json.dumps({"event": "step", "step": 1, "loss": 2.0}))
result = {"parameters": settings["layers"], "steps": 1, "seconds": 1.0, "seconds_per_step": 0.5}
print(json.dumps({"event": "result"} | result | {"draws_per_second": 7.0, "cores": 1.0, "threads": 2}))
""",
        encoding="utf-8",
    )
    monkeypatch.setattr(published_flow, "SCRIPT", script)
    scatter, told = scatter_of(SIZE), []
    # The other process must find NumPy: this interpreter has it.
    found = published_flow.run_published(
        Path(sys.executable), published_flow.Settings(1.0, layers=3), scatter, told.append
    )
    assert found[:6] == (3, 1, 0.5, 7.0, 1.0, 2) and told == ["step 1, log q − log p̃ = 2.0"]
    known = np.load(f"{script}.npy")  # and `run_published` has compared it, draw by draw, with our own density
    se = np.sqrt(np.sum(known.var(axis=1, ddof=1) / 20)) / 9
    assert (found.elbo, found.elbo_se) == pytest.approx((known.mean(), se))
    L = np.broadcast_to(np.eye(3), (9, 20, 3, 3))
    with pytest.raises(published_flow.PublishedFlowError, match="disagree"):
        published_flow.mean_elbo(L, np.zeros((9, 20)), np.zeros((9, 20)), scatter)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import json; print(json.dumps({'event': 'failed', 'message': 'the loss is nan'}))", "the loss is nan"),
        ("raise SystemExit('no torch here')", r"ended with code 1(.|\n)*no torch here"),
    ],
)
def test_a_process_that_fails_is_an_error(monkeypatch, tmp_path, code, message):
    script = tmp_path / "stand_in.py"
    script.write_text(code, encoding="utf-8")
    monkeypatch.setattr(published_flow, "SCRIPT", script)
    with pytest.raises(published_flow.PublishedFlowError, match=message):
        published_flow.run_published(Path(sys.executable), published_flow.Settings(1.0), scatter_of(SIZE))
