"""τ as shipped: close to the family it stands for, odd, invertible everywhere, a Gaussian shift far outside its range.

All but the float32 test run in double precision, with the shipped single-precision weights made double.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, ndtr

from ggmflow.flow.transport import inverse_transport, load_network, transport, transport_partials

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
IS_FAR = (np.abs(CONDITIONS[:, 0]) >= 48) | (CONDITIONS[:, 1] <= -10)


def as_arrays(*values):
    return [jnp.asarray(value, float) for value in np.broadcast_arrays(*values)]


def network():
    return jax.tree.map(partial(jnp.asarray, dtype=float), load_network())


@jax.jit
def run(network, z, delta, log_kappa, q):
    return transport(network, z, delta, log_kappa, q)


@jax.jit
def there_and_back(network, z, delta, log_kappa, q):
    x, log_dx = transport(network, z, delta, log_kappa, q)
    return x, log_dx, *inverse_transport(network, x, delta, log_kappa, q)


def log_normalizer(delta, log_kappa, q):
    """log ∫ exp(−½(x−δ)² − κ|x|^q) dx by the trapezoidal rule in log|x|: no spike is too narrow for it."""
    t, step = np.linspace(-80, np.log(70), 8000, retstep=True)
    x = np.exp(t)
    both = [t - 0.5 * (x - sign * delta) ** 2 - np.exp(log_kappa) * x**q for sign in (1, -1)]
    return logsumexp(both) + np.log(step)


def divergence(delta, log_kappa, q):
    """KL of τ # N(0, 1) to the family, by the trapezoidal rule in z; one number per condition."""
    z = np.linspace(-7, 7, 561)
    weight = np.exp(-0.5 * z**2)
    weight /= weight.sum()
    x, log_dx = map(np.asarray, run(network(), *as_arrays(z, delta[:, None], log_kappa[:, None], q[:, None])))
    log_q = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_dx
    log_p = -0.5 * (x - delta[:, None]) ** 2 - np.exp(log_kappa[:, None]) * np.abs(x) ** q[:, None]
    log_Z = [log_normalizer(*condition) for condition in zip(delta, log_kappa, q, strict=True)]
    return (log_q - log_p) @ weight + log_Z


def test_normalizer_against_closed_forms():
    """The oracle of the next test, at q = 2 and q = 1."""
    for delta, log_kappa in [(0.0, -6.0), (1.5, 0.0), (6.0, 4.0)]:
        kappa = np.exp(log_kappa)
        ridge = 0.5 * np.log(2 * np.pi / (1 + 2 * kappa)) - kappa * delta**2 / (1 + 2 * kappa)
        np.testing.assert_allclose(log_normalizer(delta, log_kappa, 2.0), ridge, atol=1e-8)
        sides = [0.5 * (s * delta - kappa) ** 2 + log_ndtr(s * delta - kappa) for s in (1, -1)]
        lasso = 0.5 * np.log(2 * np.pi) - 0.5 * delta**2 + logsumexp(sides)
        np.testing.assert_allclose(log_normalizer(delta, log_kappa, 1.0), lasso, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_shipped_weights_reach_the_family():
    """mean KL ≤ 0.01, max ≤ 0.1; `python -m experiments.transport --check` prints the finer grid."""
    axes = [0.0, 1.0, 2.0, 3.5, 6.0], [-6.0, -3.0, 0.0, 1.0, 2.0, 3.0, 4.0], [0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 2.0]
    kl = divergence(*(axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")))
    assert np.all(kl > -1e-6)
    assert kl.mean() <= 0.01
    assert kl.max() <= 0.1


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("delta", "log_kappa"), [(0.0, -3.0), (1.0, 0.0), (3.0, 1.0), (6.0, 2.0)])
def test_against_closed_form_distributions(delta, log_kappa):
    """Φ(z) is the distribution function at τ(z): a Gaussian for q = 2, two truncated ones for q = 1."""
    z, kappa = np.linspace(-4, 4, 201), np.exp(log_kappa)
    x, _ = run(network(), *as_arrays(z, delta, log_kappa, 2.0))
    precision = 1 + 2 * kappa
    np.testing.assert_allclose(ndtr((x - delta / precision) * np.sqrt(precision)), ndtr(z), atol=0.04)

    x, _ = map(np.asarray, run(network(), *as_arrays(z, delta, log_kappa, 1.0)))
    right = np.exp(0.5 * (delta - kappa) ** 2) * ndtr(delta - kappa)
    left = np.exp(0.5 * (delta + kappa) ** 2) * ndtr(-delta - kappa)
    below = np.exp(0.5 * (delta + kappa) ** 2) * ndtr(np.minimum(x, 0) - delta - kappa)
    above = np.exp(0.5 * (delta - kappa) ** 2) * (ndtr(delta - kappa) - ndtr(delta - kappa - np.maximum(x, 0)))
    np.testing.assert_allclose((below + above) / (left + right), ndtr(z), atol=0.04)


@pytest.mark.usefixtures("x64")
def test_symmetry():
    z = np.linspace(-6, 6, 25)[:, None]
    delta, log_kappa, q = CONDITIONS.T
    x, log_dx = run(network(), *as_arrays(z, delta, log_kappa, q))
    mirrored, log_dx_mirrored = run(network(), *as_arrays(-z, -delta, log_kappa, q))
    np.testing.assert_allclose(mirrored, -x, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(log_dx_mirrored, log_dx, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_round_trip():
    """To |z| = 30, inside the trained range, in its corners and beyond."""
    z = np.linspace(-30, 30, 121)[:, None]
    x, log_dx, z_again, log_dz = there_and_back(network(), *as_arrays(z, *CONDITIONS.T))
    assert np.all(np.diff(x, axis=0) > 0)
    np.testing.assert_allclose(z_again, np.broadcast_to(z, x.shape), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(log_dz, -log_dx, atol=1e-7)


def test_round_trip_in_single_precision():
    z = np.linspace(-30, 30, 121)[:, None]
    x, log_dx, z_again, log_dz = there_and_back(network(), *as_arrays(z, *CONDITIONS.T))
    assert {value.dtype.name for value in (x, log_dx, z_again, log_dz)} == {"float32"}
    assert np.all(np.isfinite(x)) and np.all(np.isfinite(log_dx))
    assert np.all(np.diff(x, axis=0) >= 0)
    np.testing.assert_allclose(z_again, np.broadcast_to(z, x.shape), rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("x64")
def test_far_outside_it_is_a_gaussian_shift():
    z = np.linspace(-8, 8, 33)[:, None]
    delta, log_kappa, q = CONDITIONS[IS_FAR].T
    x, log_dx = run(network(), *as_arrays(z, delta, log_kappa, q))
    shift = x[0] - z[0]
    np.testing.assert_allclose(x, z + shift, atol=1e-12)
    np.testing.assert_allclose(log_dx, 0, atol=1e-12)
    # x* lies between 0 and δ, at the mode of the slab: x* + κq x*^{q−1} = δ.
    assert np.all((0 <= shift / delta) & (shift / delta <= 1))
    mode = np.abs(shift)
    np.testing.assert_allclose(mode + np.exp(log_kappa) * q * mode ** (q - 1), np.abs(delta), atol=0.05)


@pytest.mark.usefixtures("x64")
def test_there_is_no_jump_at_the_edge_of_the_range():
    """Parameters fade: along δ from 39 to 49 and log κ from −7 to −11 the largest step shrinks with the step size."""
    for sizes in ((400, 4000),):
        steps = []
        for size in sizes:
            side = np.linspace(39, 49, size)
            down = np.linspace(-7, -11, size)
            x = [run(network(), *as_arrays(0.7, side, 1.0, 0.5))[0], run(network(), *as_arrays(0.7, 3.0, down, 0.5))[0]]
            steps.append(max(np.max(np.abs(np.diff(value))) for value in x))
        assert steps[1] < 0.2 * steps[0]


@pytest.mark.usefixtures("x64")
def test_partials_are_the_derivatives():
    z = np.array([-6.0, -1.3, 0.2, 2.1])[:, None]
    arguments = [value.ravel() for value in as_arrays(z, *CONDITIONS.T)]
    weights = network()
    got = jax.jit(transport_partials)(weights, *arguments)
    for k, (values, derivatives) in enumerate([(got.x, got.x_of), (got.log_dx, got.log_dx_of)]):

        def scalar(*arguments, k=k):
            return transport(weights, *arguments)[k]

        np.testing.assert_allclose(values, run(weights, *arguments)[k], rtol=1e-12)
        expected = jax.jit(jax.vmap(jax.grad(scalar, (0, 1, 2))))(*arguments)
        for one, other in zip(derivatives, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(np.log(got.x_of[0]), got.log_dx, atol=1e-9)


def test_weights_are_single_precision_and_cannot_be_changed_by_accident():
    first, second = load_network(), load_network()
    assert first is second
    assert {value.dtype.name for value in first} == {"float32"}
    assert all(np.all(np.isfinite(value)) for value in first)
