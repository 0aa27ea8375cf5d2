"""Calibration, small: ranks of the truth are uniform, intervals cover it, mistakes are seen."""

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from tests.support import calibration, oracles
from tests.support.calibration import (
    CENTRED,
    CONDITIONS,
    EXACT,
    FLOW,
    MISTAKES,
    NARROW,
    SHAPE,
    WEIGHTED,
    conditions,
    make_jobs,
    replicate_centred,
    run,
)
from tests.support.ranks import (
    L,
    Outcome,
    coverage_lines,
    ecdf_band,
    p_values,
    pick,
    rank_lines,
)

REPLICATIONS, FITS = 204, 24


@pytest.fixture(scope="module")
def found():
    """Exact sampler and mistakes on 204 data sets of three variables, the flow on the first 24 of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, shorter in {"num_warmup": 20, "thin": 4}.items():
            patch.setitem(calibration.CHAINS, name, shorter)
        return run(make_jobs((3,), REPLICATIONS, FITS), None, Console(quiet=True))


def smallest(found, sampler):
    return min(line.value for line in rank_lines(pick(found, sampler=sampler)) if line.low is not None)


# ------------------------------------------------------------------------------------------------------------ the prior
def prior_sample(d, num_calls):
    """Draws for every condition, by calls of one shape, which is compiled once."""
    lam, q = conditions(REPLICATIONS)
    draws = np.concatenate([calibration.prior_draws(d, lam, q, seed=k) for k in range(1, num_calls + 1)])
    at = list(zip(np.tile(lam, num_calls).tolist(), np.tile(q, num_calls).tolist(), strict=True))
    return {pair: draws[[each == pair for each in at]] for pair in CONDITIONS}


@pytest.mark.slow
def test_truths_come_from_the_prior():
    """Against rejection sampling at d = 3: 18 two-sample KS tests, p > 5e-6, false-alarm rate below 1e-4."""
    rng = np.random.default_rng(3)
    for (lam, q), ours in prior_sample(3, 4).items():
        theirs = oracles.prior_draws(rng, 3, lam, q, 2000)
        for f in (
            lambda Omega: Omega[:, 1, 1],
            lambda Omega: Omega[:, 0, 2],
            lambda Omega: np.linalg.slogdet(Omega)[1],
        ):
            assert stats.ks_2samp(f(ours), f(theirs)).pvalue > 5e-6


@pytest.mark.slow
def test_closed_forms_of_the_prior():
    """Hold for the truths, |z| < 4.5 and p > 1e-5 (false-alarm rate 2e-5), and do not for matrices a fifth larger."""
    problems = calibration.problems(3, REPLICATIONS)
    z, p = calibration.check_truths(problems)
    assert abs(z) < 4.5
    assert p > 1e-5
    z, p = calibration.check_truths([each._replace(truth=1.2 * each.truth) for each in problems])
    assert abs(z) > 4.5
    assert p < 0.01


@pytest.mark.slow
def test_data_follow_the_truth():
    """tr(Ω₀S) ~ χ²_{nd} of 204 data sets: KS, p > 1e-4."""
    problems = calibration.problems(3, REPLICATIONS)
    values = [np.sum(each.truth * each.scatter.matrix) for each in problems]
    assert stats.kstest(values, stats.chi2(3 * calibration.ROWS[3]).cdf).pvalue > 1e-4


# ---------------------------------------------------------------------------------------------------------- calibration
@pytest.mark.slow
def test_the_exact_sampler_is_calibrated(found):
    """Six p-values of 204 ranks each above 1e-5: false-alarm rate below 6e-5. Coverage: nine times ± 4.5 sd, 1e-4."""
    assert len(pick(found, sampler=EXACT)) == REPLICATIONS
    assert smallest(found, EXACT) > 1e-5
    for line in coverage_lines(pick(found, sampler=EXACT)):
        assert abs(line.value - 0.9) < 4.5 * np.sqrt(0.09 / line.replications)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_sampler_is_seen(found, mistake):
    """The same 204 data sets: shape n/2 for γ, as in a published sampler; draws too narrow by 30 %."""
    assert smallest(found, mistake) < 1e-5


@pytest.mark.slow
def test_an_estimated_mean_is_calibrated_and_one_taken_as_known_is_not(monkeypatch):
    """Ten rows of unknown mean, 204 data sets: six p-values above 1e-5, false-alarm rate 6e-5."""
    for name, shorter in {"num_warmup": 20, "thin": 4}.items():
        monkeypatch.setitem(calibration.CHAINS, name, shorter)
    cases = {"known": (10, 10), "estimated": (10, 9)}
    found = [one for each in calibration.problems(3, REPLICATIONS) for one in replicate_centred(each, cases)]
    p = {
        name: [min(p_values(ranks, seed=k).values()) for k, ranks in enumerate(np.array(ranks_of).T)]
        for name in cases
        for ranks_of in [[one.ranks for one in pick(found, sampler=name)]]
    }
    assert min(p["estimated"]) > 1e-5
    assert min(p["known"]) < 1e-5


def paired(found, sampler):
    """z of mean differences between ranks and those of the exact sampler on the same data, one for each function.

    Given the data both count how many of 99 draws are below the truth: the variance of a difference is at most 99/2.
    """
    ranks = {(one.sampler, one.index): one.ranks for one in found}
    difference = np.array([np.subtract(ranks[sampler, k], ranks[EXACT, k]) for k in range(FITS)])
    return difference.sum(axis=0) / np.sqrt(FITS * L / 2)


def width(found, sampler):
    """Mean log ratio between widths of 90 % intervals and those of the exact sampler on the same data, by function.

    Of the exact sampler run twice, on 204 data sets, a log ratio has a standard deviation of 0.07: the mean of 24 has
    one of 0.014.
    """
    widths = {(one.sampler, one.index): one.widths for one in found}
    return np.mean([np.log(np.divide(widths[sampler, k], widths[EXACT, k])) for k in range(FITS)], axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [FLOW, WEIGHTED])
def test_the_flow_is_calibrated(found, sampler):
    """24 fits: KS of three functions, p > 1e-5, and beside the exact sampler |z| < 4.5: false-alarm rate 5e-5.

    Widths differ by less than 10 %, which is 7 sd for a right flow and 5 sd (2e-6) for one 3 % too narrow.
    """
    part = pick(found, sampler=sampler)
    assert len(part) == FITS
    for line in rank_lines(part):
        assert line.q != "all" or line.statistic != "KS" or line.value > 1e-5
    assert np.abs(paired(found, sampler)).max() < 4.5
    assert np.abs(width(found, sampler)).max() < 0.1


@pytest.mark.slow
def test_few_data_sets_show_mistakes(found):
    """What the flow's 24 fits are held to is not met: in place if γ has the shape n/2, in width if sd is × 0.7."""
    assert np.abs(paired(found, SHAPE)).max() > 6
    assert width(found, NARROW).max() < -0.25


# ---------------------------------------------------------------------------------------- p-values and interrupted runs
@pytest.mark.slow
def test_p_values_of_uniform_ranks():
    """Of 1000 sets of 200 uniform ranks a share of 0.05 has p < 0.05, within 4.5 sd (7e-6 a statistic)."""
    rng = np.random.default_rng(8)
    found = [p_values(rng.integers(0, L + 1, 200), seed=k) for k in range(1000)]
    for statistic in ("KS", "χ²"):
        assert abs(sum(p[statistic] < 0.05 for p in found) - 50) < 4.5 * np.sqrt(50)


def test_p_values_see_what_ranks_can_show():
    """Too high, too wide, too narrow."""
    u = (np.arange(300) + 0.5) / 300
    for wrong in (u**1.5, 0.15 + 0.7 * u, 0.5 + np.sign(u - 0.5) * np.abs(2 * u - 1) ** 0.5 / 2):
        assert min(p_values((wrong * (L + 1)).astype(int)).values()) < 1e-4
    assert min(p_values((u * (L + 1)).astype(int)).values()) > 0.5


def test_band_of_the_picture():
    """99 % of uniform ranks stay in it, 2000 new sets, within 4.5 sd."""
    low, high = ecdf_band(200)
    counts = np.random.default_rng(9).multinomial(200, np.full(L + 1, 1 / (L + 1)), size=2000)
    ecdf = np.cumsum(counts, axis=1)[:, :-1] / 200 - np.arange(1, L + 1) / (L + 1)
    outside = np.any((ecdf < low - 1e-9) | (ecdf > high + 1e-9), axis=1).sum()
    assert abs(outside - 20) < 4.5 * np.sqrt(20)


def few_problems(num):
    return [calibration.Problem(k, 1.0, 0.5, np.eye(3), None, (0, (0, 1))) for k in range(num)]


def test_rows_are_centred_and_only_n_changes(monkeypatch):
    """Both ways to give rows less their mean have the S of centred rows; n is their number or one less."""
    given = []
    monkeypatch.setattr(calibration, "run_chains", lambda _, scatter: given.append(scatter) or np.zeros((2, 2, 3, 3)))
    monkeypatch.setattr(calibration, "of_chains", lambda name, *_: name)
    assert calibration.replicate_centred(few_problems(1)[0]) == list(CENTRED)
    assert [scatter.n for scatter in given] == [10, 9, 50, 49]
    for known, less in (given[:2], given[2:]):
        np.testing.assert_allclose(less.matrix, known.matrix, rtol=1e-12)


@pytest.fixture
def cut(tmp_path, monkeypatch):
    """A run of twelve and three replications that ended after the tenth; its file, what was asked, what is to do."""
    asked = []

    def replicate(sampler):
        def one(problem):
            if len(asked) == 10:
                asked.append("cut")
                raise KeyboardInterrupt
            asked.append((sampler, problem.index))
            return [Outcome(sampler, 3, problem.index, 1.0, 0.5, (1, 2, 3), (0, 1, 1), (0.1, 2.0, 1 / 3), 0.5)]

        return one

    for name in (EXACT, FLOW):
        monkeypatch.setitem(calibration.REPLICATE, name, replicate(name))
    todo = [(EXACT, few_problems(12)), (FLOW, few_problems(3))]
    file = tmp_path / "ranks.csv"
    with pytest.raises(KeyboardInterrupt):
        run(todo, file, Console(quiet=True))
    return file, asked, todo


def test_an_interrupted_run_continues(cut):
    """Replications in the file are not run again, and are read as they were written."""
    file, asked, todo = cut
    found = run(todo, file, Console(quiet=True))
    assert asked[10:] == ["cut", (EXACT, 10), (EXACT, 11), (FLOW, 0), (FLOW, 1), (FLOW, 2)]
    assert len({repr(one._replace(sampler="", index=0)) for one in found}) == 1
    assert len(found) == 15


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda patch: patch.setattr(calibration, "versions", lambda: {"ggmflow": "0.0"}),
            "ggmflow .* now 0.0; jax",
        ),
        (lambda patch: patch.setitem(calibration.FIT, "steps", 77), "fit .*'steps': 300.* now .*'steps': 77"),
        (lambda patch: patch.setattr(calibration, "SEED", 5), "seed 20231210, now 5"),
    ],
)
def test_a_run_of_other_versions_or_settings_does_not_continue(cut, monkeypatch, change, told):
    """The error says what differs, and the file stays."""
    file, asked, todo = cut
    before = file.read_bytes()
    change(monkeypatch)
    with pytest.raises(ValueError, match=told):
        run(todo, file, Console(quiet=True))
    assert asked[-1] == "cut"
    assert file.read_bytes() == before


def test_a_file_without_versions_and_settings_is_an_error(cut):
    """Such as one of an earlier version."""
    file, _, todo = cut
    lines = file.read_text(encoding="utf-8").split("\n\n")[-1]
    file.write_text(lines, encoding="utf-8")
    with pytest.raises(ValueError, match="has no versions and settings"):
        run(todo, file, Console(quiet=True))
