"""Each one-dimensional kernel, started from exact draws, must give exact draws: KS tests against SciPy.

p < 1e-5 is called a failure: with 34 tests the false-alarm rate is 4e-4, and the keys are fixed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ggmflow.gibbs.one_dimension import draw_entry, draw_in_box, draw_schur

NUM = 20_000
pytestmark = pytest.mark.usefixtures("x64")

BOXES = [  # (centre, sd, box)
    (0.0, 1.0, 1.0),
    (0.7, 1.0, 2.0),
    (-0.7, 2.0, 30.0),
    (3.0, 1.0, 0.5),
    (-6.5, 1.0, 1.0),  # just where the inverse cdf hands over to the exponential
    (50.0, 1.0, 3.0),  # so far out that no cdf can be inverted
    (-4000.0, 1.0, 30.0),
    (0.3, 1.0, 1e-6),  # so narrow that it is uniform
    (-2.0, 5.0, 0.3),
    (1e-3, 1e-3, 1.0),  # the box hardly matters
    (1.0, 1.0, np.inf),
    (-1e4, 1e2, 1.5e4),
]


def apply_box(x, centre, sd, box, seed=1):
    uniform, accept = jax.random.uniform(jax.random.key(seed), (2, NUM), jnp.float32)
    return np.asarray(jax.vmap(draw_in_box, (0, None, None, None, 0, 0))(x, centre, sd, box, uniform, accept))


@pytest.mark.parametrize("centre, sd, box", BOXES)
def test_normal_in_a_box_stays_one(centre, sd, box):
    exact = stats.truncnorm((-box - centre) / sd, (box - centre) / sd, loc=centre, scale=sd)
    # By the quantile function: in the far tail SciPy's own is exact to rounding of the box, which is enough.
    start = np.clip(exact.ppf(np.random.default_rng(0).uniform(size=NUM)), -box, box)
    out = apply_box(jnp.asarray(start), *map(jnp.asarray, (centre, sd, box)))
    assert np.all(np.abs(out) <= box)
    assert stats.kstest(out, exact.cdf).pvalue > 1e-5
    assert np.mean(out != start) > 0.9


@pytest.mark.parametrize("centre, sd, box", [b for b in BOXES if b[0] in (0.7, 3.0, 50.0)])
def test_the_draw_forgets_where_it_started(centre, sd, box):
    """From one end of the box, one step is already a draw (up to the rare rejection at the edge)."""
    exact = stats.truncnorm((-box - centre) / sd, (box - centre) / sd, loc=centre, scale=sd)
    out = apply_box(jnp.full(NUM, 0.999 * box), *map(jnp.asarray, (centre, sd, box)), seed=2)
    moved = out[out != 0.999 * box]
    assert len(moved) > 0.95 * NUM
    assert abs(np.mean(exact.cdf(moved)) - 0.5) < 0.02


ENTRIES = [  # (centre, sd, strength, q)
    (0.5, 1.0, 1.0, 1.0),
    (-3.0, 0.5, 4.0, 1.0),
    (20.0, 1.0, 10.0, 1.0),  # cold: the box of the slice step is a tenth of sd
    (2.0, 1.0, 2.0, 0.5),  # two modes, at the cusp and inside
    (-4.0, 1.0, 3.0, 0.25),
    (1.0, 2.0, 0.5, 2.0),
    (0.0, 1.0, 30.0, 0.5),
]


def entry_cdf(centre, sd, strength, q):
    """cdf of exp(−½((x−m)/σ)² − λ|x|^q) by quadrature on a grid that is fine at the cusp."""
    side = np.concatenate([[0], np.geomspace(1e-12, abs(centre) + 12 * sd, 20_000)])
    grid = np.concatenate([-side[:0:-1], side])
    log_density = -0.5 * ((grid - centre) / sd) ** 2 - strength * np.abs(grid) ** q
    density = np.exp(log_density - log_density.max())
    cdf = np.concatenate([[0], np.cumsum(np.diff(grid) * (density[1:] + density[:-1]) / 2)])
    return grid, cdf / cdf[-1]


@pytest.mark.parametrize("centre, sd, strength, q", ENTRIES)
def test_an_entry_keeps_its_distribution_and_forgets_where_it_was(centre, sd, strength, q):
    """Started from exact draws it gives exact draws; the rank correlation with the start stays below 0.8."""
    grid, cdf = entry_cdf(centre, sd, strength, q)
    start = np.interp(np.random.default_rng(0).uniform(size=NUM), cdf, grid)
    key_exponential, key_uniforms = jax.random.split(jax.random.key(4))
    out = jax.vmap(draw_entry, (0, None, None, None, None, 0, 0))(
        jnp.asarray(start),
        *map(jnp.asarray, (centre, sd, strength, q)),
        jax.random.exponential(key_exponential, (NUM,)),
        jax.random.uniform(key_uniforms, (NUM, 4), jnp.float32, minval=2**-25),
    )
    assert stats.kstest(np.asarray(out), lambda x: np.interp(x, grid, cdf)).pvalue > 1e-5
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
