"""Importance weights against integrals known exactly; weighted quantiles against repetition and NumPy."""

import numpy as np
import pytest
from scipy import stats

from ggmflow.posterior.weights import blocks, importance_weights, resample, sort_order, weighted_quantile


def normal_ratio(rng, scale, num_draws):
    """Draws of N(0, scale²) with weights for the kernel exp(−x²/2), whose integral is √(2π)."""
    x = scale * rng.standard_normal(num_draws)
    return x, -(x**2) / 2 - stats.norm(scale=scale).logpdf(x)


def test_log_normalizer_and_its_standard_error(rng):
    """z-scores over 200 repetitions are standard normal: mean within 4.5/√200 and χ² between its 1e-5 tails (3e-5)."""
    z, elbo = [], []
    for _ in range(200):
        weights = importance_weights(normal_ratio(rng, 1.5, 2000)[1])
        z.append((weights.log_normalizer - 0.5 * np.log(2 * np.pi)) / weights.log_normalizer_se)
        elbo.append(weights.elbo)
        assert weights.reliable and not weights.poor
    assert abs(np.mean(z)) < 4.5 / np.sqrt(200)
    low, high = stats.chi2(200).ppf([1e-5, 1 - 1e-5])
    assert low < np.sum(np.square(z)) < high
    assert np.mean(elbo) < 0.5 * np.log(2 * np.pi)


def test_effective_sample_size_is_its_formula(rng):
    """E[w]²/E[w²] = √(2σ² − 1)/σ² for a proposal of scale σ: 0.83 at 1.5. 20 000 draws have a relative error of 1 %."""
    ess = importance_weights(normal_ratio(rng, 1.5, 20_000)[1]).ess
    assert ess == pytest.approx(np.sqrt(2 * 1.5**2 - 1) / 1.5**2, rel=0.05)


def test_khat_detects_a_proposal_that_is_too_narrow(rng):
    """For scale σ < 1 the weights have a Pareto tail with k = 1 − σ²: 0.91 at σ = 0.3, which is beyond use."""
    weights = importance_weights(normal_ratio(rng, 0.3, 4000)[1])
    assert weights.khat > 0.7 and not weights.reliable and weights.poor
    assert importance_weights(normal_ratio(rng, 0.9, 4000)[1]).khat < 0.5


def test_smoothing_leaves_the_bulk_and_the_scale_alone(rng):
    log_ratio = normal_ratio(rng, 0.8, 4000)[1]
    weights = importance_weights(log_ratio + 1000)
    in_scale = weights.values * 4000 * np.exp(weights.log_normalizer - 1000)
    order = np.argsort(log_ratio)
    np.testing.assert_allclose(in_scale[order[:3500]], np.exp(log_ratio[order[:3500]]))
    assert np.any(np.abs(in_scale[order[3900:]] / np.exp(log_ratio[order[3900:]]) - 1) > 1e-3)
    assert weights.values.sum() == pytest.approx(1)


@pytest.mark.parametrize("noise", [0.0, 1e-12, 6e-5])
def test_equal_weights_are_the_best_there_are(noise, rng):
    """Also up to rounding, in steps as float32 makes them: a Pareto fit to rounding would mean nothing."""
    weights = importance_weights(3.0 + noise * rng.integers(-2, 3, size=1000))
    assert weights.khat == 0 and weights.reliable and not weights.poor
    assert weights.ess == pytest.approx(1)
    assert weights.log_normalizer == pytest.approx(3, abs=1e-3)
    assert weights.elbo == pytest.approx(3, abs=1e-3)
    assert weights.log_normalizer_se < 1e-5


@pytest.mark.parametrize("others", [-np.inf, -1e6, -800.0])
def test_one_draw_that_outweighs_all_others(others):
    log_ratio = np.full(1000, others)
    log_ratio[17] = 0.0
    weights = importance_weights(log_ratio)
    assert not weights.reliable and weights.poor
    assert weights.ess == pytest.approx(1 / 1000)
    assert np.all(np.isfinite(weights.values)) and weights.values.argmax() == 17


def test_zero_weights_are_weights():
    """Half the draws where the target is zero: log Z halves, and the effective sample size too."""
    weights = importance_weights(np.repeat([0.0, -np.inf], 500))
    assert weights.reliable and weights.num_invalid == 0
    assert weights.ess == pytest.approx(0.5)
    assert weights.log_normalizer == pytest.approx(np.log(0.5))
    assert weights.elbo == -np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_draws_without_a_density_are_counted_not_hidden(bad):
    log_ratio = np.linspace(0, 1, 1000)
    log_ratio[[3, 900]] = bad
    weights = importance_weights(log_ratio)
    assert weights.num_invalid == 2 and not weights.reliable and weights.khat == np.inf and np.isnan(weights.elbo)
    assert np.all(weights.values[[3, 900]] == 0) and np.isfinite(weights.values).all()
    assert "2 draws without a finite density" in str(weights)
    with pytest.raises(ValueError, match="None of the 30 draws"):
        importance_weights(np.full(30, bad))


def test_too_few_draws_for_khat():
    weights = importance_weights(np.linspace(0, 1, 24))
    assert np.isnan(weights.khat) and not weights.reliable and weights.poor
    assert "24 draws are too few" in str(weights)


@pytest.mark.parametrize("num_draws", [250, 500, 1000, 4000, 20_000])
def test_the_verdict_does_not_depend_on_the_number_of_draws(num_draws):
    """A k̂ that is too large is poor; few effective draws alone are fair, however many there are."""
    good = importance_weights(np.linspace(0, 1, num_draws))
    assert good.verdict == "good" and good._replace(ess=0.11).verdict == "good"
    assert good._replace(ess=0.09).verdict == good._replace(ess=0.01).verdict == "fair"
    assert good._replace(khat=0.55).verdict == "good"
    for khat in (0.75, np.inf, np.nan):
        assert good._replace(khat=khat).verdict == good._replace(khat=khat, ess=0.01).verdict == "poor"


def test_few_effective_draws_are_poor_even_if_khat_is_small():
    good = importance_weights(np.linspace(0, 1, 4000))
    assert not good.poor and not good._replace(ess=101 / 4000).poor
    assert good._replace(ess=99 / 4000).poor
    few = importance_weights(np.linspace(0, 1, 200))  # cannot have 100 effective draws, but a tenth of them
    assert not few._replace(ess=0.11).poor and few._replace(ess=0.09).poor


# ----------------------------------------------------------------------------------------------------------- quantiles
PROBS = np.array([0.0, 0.001, 0.05, 0.5, 0.77, 0.999, 1.0])


def test_equal_weights_give_numpy_quantiles(rng):
    values = rng.normal(size=(7, 501))
    out = weighted_quantile(values, sort_order(values), np.full(501, 1 / 501), PROBS)
    np.testing.assert_allclose(out, np.quantile(values, PROBS, axis=1, method="hazen"), atol=1e-12)


def test_a_weight_is_a_number_of_repetitions(rng):
    """Up to the width of a repeated value, between whose copies there is no slope: compare where they agree, inside."""
    values, count = rng.normal(size=(3, 400)), rng.integers(1, 6, size=400)
    out = weighted_quantile(values, sort_order(values), count / count.sum(), PROBS[2:5])
    repeated = np.quantile(np.repeat(values, count, axis=1), PROBS[2:5], axis=1, method="hazen")
    gap = np.abs(np.diff(np.sort(values), axis=1)).max()
    np.testing.assert_allclose(out, repeated, atol=gap)


def test_zero_weights_do_not_count(rng):
    values, weights = rng.normal(size=(4, 300)), np.r_[rng.uniform(size=200), np.zeros(100)]
    weights /= weights.sum()
    inside = values[:, :200]
    out = weighted_quantile(values, sort_order(values), weights, PROBS[1:-1])
    expected = weighted_quantile(inside, sort_order(inside), weights[:200], PROBS[1:-1])
    gap = np.abs(np.diff(np.sort(inside), axis=1)).max()
    np.testing.assert_allclose(out, expected, atol=gap)
    assert np.median(np.abs(out - expected)) < 0.02


def test_quantiles_of_known_distribution(rng):
    """Uniform draws with weights 2x are Beta(2, 1), quantile √p; 0.01 is over seven standard errors (1e-11)."""
    values = rng.uniform(size=(1, 200_000))
    weights = values[0] / values.sum()
    out = weighted_quantile(values, sort_order(values), weights, np.array([0.05, 0.5, 0.95]))[:, 0]
    np.testing.assert_allclose(out, np.sqrt([0.05, 0.5, 0.95]), atol=0.01)


def test_many_draws_need_wider_indices():
    values = np.arange(70_000.0)[None]
    order = sort_order(values)
    assert order.dtype == np.uint32 and sort_order(values[:, :1000]).dtype == np.uint16
    np.testing.assert_array_equal(order[0], np.arange(70_000))


def test_one_draw_is_all_its_quantiles():
    out = weighted_quantile(np.array([[2.0]]), np.array([[0]], np.uint16), np.ones(1), PROBS)
    np.testing.assert_array_equal(out, np.full((len(PROBS), 1), 2.0))


# ---------------------------------------------------------------------------------------------------------- resampling
def test_resampling_repeats_a_draw_in_proportion_to_its_weight(rng):
    weights = rng.uniform(size=50)
    weights /= weights.sum()
    chosen = resample(rng, weights, 1000)
    count = np.bincount(chosen, minlength=50)
    assert chosen.shape == (1000,) and np.all(np.abs(count - 1000 * weights) < 1)
    assert np.any(np.diff(chosen) < 0)  # in random order


@pytest.mark.parametrize(("num_rows", "length"), [(1, 5), (7, 2**20), (1000, 999)])
def test_blocks_cover_every_row_once(num_rows, length):
    covered = [row for part in blocks(num_rows, length) for row in range(num_rows)[part]]
    assert covered == list(range(num_rows))
