"""The shipped τ approximates its family inside and outside the trained range, is odd, and can be inverted everywhere.

All tests but one run in double precision, with the shipped single-precision weights converted.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, ndtr

from ggmflow.flow import transport as module
from ggmflow.flow.transport import (
    HIDDEN,
    HIDDEN_SMALL,
    inverse_transport,
    load_network,
    transport,
    transport_partials,
)

# Inside the range, in its corners, and outside it on every side: columns δ, log κ, q
CONDITIONS = np.array(
    [
        (0.0, 0.0, 1.0),
        (0.5, -3.0, 0.5),
        (1.5, 2.0, 0.1),
        (-3.0, 2.0, 0.25),
        (6.0, 4.0, 0.25),
        (-2.0, 1.0, 2.0),
        (40.0, 6.0, 0.1),
        (-40.0, -8.0, 2.0),
        (44.0, 3.0, 0.5),  # where parameters fade
        (1.0, -9.0, 0.5),
        (60.0, 0.0, 1.0),
        (-60.0, 5.0, 0.5),
        (1.0, -12.0, 0.5),
        (-1.0, 9.0, 0.5),
        (2.0, 9.0, 1.0),
    ]
)
NOISE = np.linspace(-30, 30, 121)[:, None]

# Compiling takes longer than running here, so optimizations are left out.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
jit = partial(jax.jit, compiler_options=FAST)
run = jit(transport)


def arrays(*values):
    return [jnp.asarray(value, float) for value in np.broadcast_arrays(*values)]


both_networks = pytest.mark.parametrize("hidden", [HIDDEN, HIDDEN_SMALL])


def weights(hidden=HIDDEN):
    return jax.tree.map(lambda value: jnp.asarray(value, float), load_network(hidden))


@jit
def there_and_back(network, z, delta, log_kappa, q):
    x, log_dx = transport(network, z, delta, log_kappa, q)
    return x, log_dx, *inverse_transport(network, x, delta, log_kappa, q)


def log_normalizer(delta, log_kappa, q):
    """log ∫ exp(−½(x−δ)² − κ|x|^q) dx by the trapezoidal rule in log|x|, which resolves any spike."""
    t, step = np.linspace(-80, np.log(400), 60_000, retstep=True)
    x = np.exp(t)
    both = [t - 0.5 * (x - sign * delta) ** 2 - np.exp(log_kappa) * x**q for sign in (1, -1)]
    return logsumexp(both) + np.log(step)


def divergence(delta, log_kappa, q, hidden):
    """KL of τ # N(0, 1) to the family, by the trapezoidal rule in z; one number per condition."""
    z = np.linspace(-7, 7, 4800)  # no node at z = 0, where the cusp is if δ = 0
    weight = np.exp(-0.5 * z**2)
    weight /= weight.sum()
    columns = [value[:, None] for value in (delta, log_kappa, q)]
    x, log_dx = map(np.asarray, run(weights(hidden), *arrays(z, *columns)))
    log_q = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_dx
    log_p = -0.5 * (x - columns[0]) ** 2 - np.exp(columns[1]) * np.abs(x) ** columns[2]
    log_Z = [log_normalizer(*condition) for condition in zip(delta, log_kappa, q, strict=True)]
    return (log_q - log_p) @ weight + log_Z


def test_normalizer_against_closed_forms():
    """The normalizer that the next test relies on, at q = 2 and q = 1."""
    for delta, log_kappa in [(0.0, -6.0), (1.5, 0.0), (6.0, 4.0)]:
        kappa = np.exp(log_kappa)
        ridge = 0.5 * np.log(2 * np.pi / (1 + 2 * kappa)) - kappa * delta**2 / (1 + 2 * kappa)
        np.testing.assert_allclose(log_normalizer(delta, log_kappa, 2.0), ridge, atol=1e-8)
        sides = [0.5 * (s * delta - kappa) ** 2 + log_ndtr(s * delta - kappa) for s in (1, -1)]
        lasso = 0.5 * np.log(2 * np.pi) - 0.5 * delta**2 + logsumexp(sides)
        np.testing.assert_allclose(log_normalizer(delta, log_kappa, 1.0), lasso, atol=1e-8)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@both_networks
def test_divergence_from_the_family_is_small(hidden):
    """Mean KL ≤ 0.01, largest ≤ 0.1; `python -m experiments.transport --check` prints a finer grid."""
    axes = [0.0, 1.0, 2.0, 3.5, 6.0], [-6.0, -3.0, 0.0, 1.0, 2.0, 3.0, 4.0], [0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 2.0]
    kl = divergence(*(axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")), hidden)
    assert kl.min() > -1e-4  # the rule's own error at the cusp of |x|^0.1
    assert kl.mean() <= 0.01
    assert kl.max() <= 0.1


@pytest.mark.usefixtures("x64")
def test_against_closed_form_distributions():
    """Φ(z) is the distribution function at τ(z): a Gaussian for q = 2, two truncated ones for q = 1."""
    delta, log_kappa = np.array([[0.0, -3.0], [1.0, 0.0], [3.0, 1.0], [6.0, 2.0]]).T[:, :, None]
    z, kappa = np.linspace(-4, 4, 201), np.exp(log_kappa)
    q = np.array([2.0, 1.0])[:, None, None]
    (ridge, lasso), _ = map(np.asarray, run(weights(), *arrays(z, delta, log_kappa, q)))
    precision = 1 + 2 * kappa
    np.testing.assert_allclose(ndtr((ridge - delta / precision) * np.sqrt(precision)) - ndtr(z), 0, atol=0.04)

    right, left = np.exp(0.5 * (delta - kappa) ** 2), np.exp(0.5 * (delta + kappa) ** 2)
    below = left * ndtr(np.minimum(lasso, 0) - delta - kappa)
    above = right * (ndtr(delta - kappa) - ndtr(delta - kappa - np.maximum(lasso, 0)))
    total = right * ndtr(delta - kappa) + left * ndtr(-delta - kappa)
    np.testing.assert_allclose((below + above) / total - ndtr(z), 0, atol=0.04)


@pytest.mark.usefixtures("x64")
def test_symmetry():
    delta, log_kappa, q = CONDITIONS.T
    x, log_dx = run(weights(), *arrays(NOISE, delta, log_kappa, q))
    mirrored, log_dx_mirrored = run(weights(), *arrays(-NOISE, -delta, log_kappa, q))
    np.testing.assert_allclose(mirrored, -x, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(log_dx_mirrored, log_dx, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_round_trip():
    """To |z| = 30, inside the trained range, in its corners and beyond."""
    x, log_dx, z_again, log_dz = there_and_back(weights(), *arrays(NOISE, *CONDITIONS.T))
    assert np.all(np.diff(x, axis=0) > 0)
    np.testing.assert_allclose(z_again, np.broadcast_to(NOISE, x.shape), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(log_dz, -log_dx, atol=1e-7)


def test_round_trip_in_single_precision():
    x, log_dx, z_again, log_dz = there_and_back(weights(), *arrays(NOISE, *CONDITIONS.T))
    assert {value.dtype.name for value in (x, log_dx, z_again, log_dz)} == {"float32"}
    assert np.all(np.isfinite(log_dx)) and np.all(np.diff(x, axis=0) >= 0)
    np.testing.assert_allclose(z_again, np.broadcast_to(NOISE, x.shape), rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("x64")
def test_far_in_the_slab_the_map_is_a_gaussian_shift():
    delta, log_kappa, q = far = np.array(
        [(60, 0, 1), (-60, 5, 0.5), (1, -12, 0.5), (300, 6, 1.5), (-90, 2, 2)], float
    ).T
    x, log_dx = map(np.asarray, run(weights(), *arrays(NOISE, *far)))
    # The mode of the slab solves x + κq x^{q−1} = δ; its width is that of the curvature there.
    kappa = np.exp(log_kappa)
    mode = np.abs(x[len(x) // 2])
    np.testing.assert_allclose(mode + kappa * q * mode ** (q - 1), np.abs(delta), rtol=1e-3)
    width = (1 + kappa * q * (q - 1) * mode ** (q - 2)) ** -0.5
    np.testing.assert_allclose(np.exp(log_dx), np.broadcast_to(width, x.shape), rtol=1e-4)
    np.testing.assert_allclose(x, np.sign(delta) * mode + width * NOISE, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("x64")
@both_networks
@pytest.mark.parametrize("q", [0.25, 0.5, 1.0, 1.5])
def test_divergence_is_small_outside_the_trained_range(q, hidden):
    """Large data sets and low temperatures lead there, to conditions with a dominant slab or spike."""
    conditions = [(60, 0), (60, 5), (300, 3), (300, 7), (300, 10), (2, -9), (2, 7), (2, 9), (20, 9), (-44, 3)]
    delta, log_kappa = np.array(conditions, float).T
    kl = divergence(delta, log_kappa, np.full_like(delta, q), hidden)
    assert np.all(kl > -1e-3)  # quadrature
    assert np.max(kl) < 0.1, dict(zip(conditions, kl, strict=True))


@pytest.mark.usefixtures("x64")
def test_the_map_is_continuous_at_the_edges_of_the_range():
    """Along δ from 39 to 49, and log κ from −7 to −11 and 5 to 9, in steps of 0.005 and 0.002."""
    side, down, up = np.linspace(39, 49, 2001), np.linspace(-7, -11, 2001), np.linspace(5, 9, 2001)
    delta, log_kappa = np.stack([side, np.full(2001, 3.0), np.full(2001, 3.0)]), np.stack([np.ones(2001), down, up])
    x, log_dx = run(weights(), *arrays(0.7, delta, log_kappa, 0.5))
    assert np.max(np.abs(np.diff(x))) < 0.02
    assert np.max(np.abs(np.diff(log_dx))) < 0.02


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_partials_are_the_derivatives(monkeypatch):
    """In one piece, and in many pieces of which the last is cut."""
    network, arguments = weights(), arrays(np.array([-6.0, -1.3, 0.2, 2.1])[:, None], *CONDITIONS.T)
    # elementwise, so that the gradient of a sum holds every derivative
    total = [lambda *a, k=k: jnp.sum(transport(network, *a)[k]) for k in range(2)]
    expected = jit(lambda *arguments: [jax.grad(one, (0, 1, 2))(*arguments) for one in total])(*arguments)
    x, log_dx = run(network, *arguments)
    for piece in (4096, 7):
        monkeypatch.setattr(module, "_PIECE", piece)
        got = jit(lambda *arguments: transport_partials(network, *arguments))(*arguments)
        np.testing.assert_allclose(got.x, x, rtol=1e-12)
        np.testing.assert_allclose(got.log_dx, log_dx, atol=1e-12)
        np.testing.assert_allclose(np.log(got.x_of[0]), log_dx, atol=1e-9)
        for derivatives, references in zip((got.x_of, got.log_dx_of), expected, strict=True):
            for one, other in zip(derivatives, references, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@both_networks
def test_weights_are_finite_and_single_precision(hidden):
    network = load_network(hidden)
    assert len(network.bias_1) == hidden
    assert {value.dtype.name for value in network} == {"float32"}
    assert all(np.all(np.isfinite(value)) for value in network)
