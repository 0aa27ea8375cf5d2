"""Each one-dimensional kernel, started from exact draws, must give exact draws: KS tests against SciPy.

p < 1e-5 is called a failure: with 37 tests the false-alarm rate is 4e-4, and the keys are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ggmflow.gibbs.one_dimension import draw_entry, draw_in_box, draw_schur

NUM = 20_000
pytestmark = pytest.mark.usefixtures("x64")

BOXES = [  # (δ, box)
    (0.0, 1.0),
    (0.7, 2.0),
    (0.35, 15.0),
    (3.0, 0.5),
    (6.5, 1.0),  # just where the inverse cdf hands over to the exponential
    (50.0, 3.0),  # so far out that no cdf can be inverted
    (4000.0, 30.0),
    (0.3, 1e-6),  # so narrow that it is uniform
    (0.4, 0.06),
    (1.0, 1000.0),  # the box hardly matters
    (1.0, np.inf),
    (100.0, 150.0),
]


def single(*numbers):
    return [jnp.asarray(x, jnp.float32) for x in numbers]


def truncated_normal(delta, box):
    return stats.truncnorm(-box - delta, box - delta, loc=delta)


def apply_box(x, delta, box, seed=1):
    uniforms = jax.random.uniform(jax.random.key(seed), (2, NUM), jnp.float32, minval=2**-25)
    return np.asarray(jax.vmap(draw_in_box, (0, None, None, 0, 0))(*single(x, delta, box), *uniforms), float)


@pytest.mark.parametrize("delta, box", BOXES)
def test_a_truncated_normal_keeps_its_distribution(delta, box):
    exact = truncated_normal(delta, box)
    start = np.clip(exact.ppf(np.random.default_rng(0).uniform(size=NUM)), -box, box)
    out = apply_box(start, delta, box)
    assert np.all(np.abs(out) <= np.float32(box))
    assert stats.kstest(out, exact.cdf).pvalue > 1e-5
    assert np.mean(out != start) > 0.9


@pytest.mark.parametrize("delta, box", [(0.7, 2.0), (3.0, 0.5), (50.0, 3.0)])
def test_a_draw_is_nearly_independent_of_the_start(delta, box):
    """From one end of the box, one step is already a draw (up to the rare rejection at the edge)."""
    out = apply_box(np.full(NUM, 0.999 * box), delta, box, seed=2)
    moved = out[out != np.float32(0.999 * box)]
    assert len(moved) > 0.95 * NUM
    assert abs(np.mean(truncated_normal(delta, box).cdf(moved)) - 0.5) < 0.02


ENTRIES = [  # (δ, κ, q)
    (0.5, 1.0, 1.0),
    (-6.0, 2.0, 1.0),
    (20.0, 10.0, 1.0),  # cold: the box of the slice step is a tenth of the sd
    (2.0, 2.0, 0.5),  # two modes, at the cusp and inside
    (-4.0, 3.0, 0.25),
    (0.5, 2.0, 2.0),
    (20.0, 1.0, 2.0),
    (20.0, 10.0, 1.5),
    (5.0, 1.0, 3.0),
    (0.0, 30.0, 0.5),
]


def entry_cdf(delta, kappa, q):
    """cdf of exp(−½(x−δ)² − κ|x|^q) by quadrature on a grid that is fine at the cusp."""
    side = np.concatenate([[0], np.geomspace(1e-12, abs(delta) + 12, 20_000)])
    grid = np.concatenate([-side[:0:-1], side])
    log_density = -0.5 * (grid - delta) ** 2 - kappa * np.abs(grid) ** q
    density = np.exp(log_density - log_density.max())
    cdf = np.concatenate([[0], np.cumsum(np.diff(grid) * (density[1:] + density[:-1]) / 2)])
    return grid, cdf / cdf[-1]


@pytest.mark.parametrize("delta, kappa, q", ENTRIES)
def test_an_entry_keeps_its_distribution_and_mixes(delta, kappa, q):
    """Started from exact draws it gives exact draws; the rank correlation with the start stays below 0.8."""
    grid, cdf = entry_cdf(delta, kappa, q)
    start = np.interp(np.random.default_rng(0).uniform(size=NUM), cdf, grid)
    key_exponential, key_uniforms = jax.random.split(jax.random.key(4))
    out = jax.vmap(draw_entry, (0, None, None, None, 0, 0))(
        *single(start, delta, np.log(kappa), q),
        jax.random.exponential(key_exponential, (NUM,), jnp.float32),
        jax.random.uniform(key_uniforms, (NUM, 4), jnp.float32, minval=2**-25),
    )
    assert stats.kstest(np.asarray(out, float), lambda x: np.interp(x, grid, cdf)).pvalue > 1e-5
    assert stats.spearmanr(np.abs(start), np.abs(out)).statistic < 0.8


@pytest.mark.parametrize("n", [0, 1, 15, 200, 1e6])
@pytest.mark.parametrize("b", [0.0, 0.3, 500.0])
def test_schur_complement_keeps_its_distribution(n, b):
    """γ^{n/2} exp(−½aγ − ½b/γ): Gamma(n/2 + 1, a/2) without b, generalized inverse Gaussian with it."""
    a, p = 2.5, n / 2 + 1
    exact = stats.gamma(p, scale=2 / a) if b == 0 else stats.geninvgauss(p, np.sqrt(a * b), scale=np.sqrt(b / a))
    start = exact.rvs(NUM, random_state=0)
    uniforms = jax.random.uniform(jax.random.key(3), (NUM, 3))
    new = np.asarray(jax.vmap(draw_schur, (0, 0, None, None, None))(uniforms, jnp.asarray(start), n, a, b))
    assert stats.ks_2samp(new, exact.rvs(NUM, random_state=1)).pvalue > 1e-5
    assert np.mean(new != start) > 0.6
