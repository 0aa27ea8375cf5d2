"""Generic tests of every bijection of the flows.

A new bijection needs one `Case` in `CASES`; all generic tests then apply to it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.bijections import AbstractBijection
from paramax import NonTrainable, unwrap

from ggmflow.flow.autoregressive import AutoregressiveSumOfSigmoids
from ggmflow.flow.cholesky import BlockProduct, CholeskyProduct, PositiveDiagonal, diagonal_positions
from ggmflow.flow.monotone import invert_increasing
from ggmflow.flow.paper import paper_bijection
from ggmflow.flow.structured_columns import StructuredColumns
from ggmflow.flow.sum_of_sigmoids import inverse_sum_of_sigmoids, near_identity, sum_of_sigmoids
from ggmflow.flow.transport import inverse_transport, load_network, transport
from ggmflow.model.target import to_columns

# Nearly all the time is spent compiling, so optimizations are left out; formulas are tested, not speed.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
jit, filter_jit = (partial(function, compiler_options=FAST) for function in (jax.jit, eqx.filter_jit))


def normal_inputs(rng, bijection):
    return 2 * rng.normal(size=(4, *bijection.shape))


def factor_inputs(rng, bijection):
    """Entries of L, whose diagonal is positive."""
    x = rng.normal(size=(4, *bijection.shape))
    at = diagonal_positions(bijection.n_features, bijection.n_query)
    x[:, at] = 1 + np.abs(x[:, at])
    return x


def uniform_condition(rng, bijection):
    """[log λ, q, log T] in the unit cube; None if the bijection takes none."""
    return None if bijection.cond_shape is None else rng.uniform(size=bijection.cond_shape)


@dataclass(frozen=True)
class Case:
    """One bijection and how to test it."""

    construct: Callable[[jax.Array], AbstractBijection]  # from a key, with parameters in general position
    inputs: Callable[[np.random.Generator, AbstractBijection], np.ndarray] = normal_inputs  # a batch of 4
    condition: Callable[[np.random.Generator, AbstractBijection], np.ndarray | None] = uniform_condition
    tolerance: float = 1e-9  # relative to 1 + |x|, float64
    tolerance_float32: float = 2e-4
    parameters: bool = True  # whether it has weights
    composite: bool = False  # a chain of cases: its inverse is not tested in far tails, nor differentiated in θ
    sequential: bool = False  # factorizes once, then loops; `test_structured_gradient.py` tests gradients and float32


def perturbed(bijection, scale=0.2):
    """Move every trainable parameter away from its initial value."""
    rng = np.random.default_rng(0)  # JAX would compile a generator for every shape, which is slow

    def move(leaf):
        return leaf + jnp.asarray(scale * rng.normal(size=leaf.shape), float) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(move, bijection, is_leaf=lambda leaf: isinstance(leaf, NonTrainable))


def small_paper(key):
    """A query block of 2 in 3 variables; with s = d only the last map differs, which has a case of its own."""
    sizes = dict(num_layers=2, num_blocks=1, width=8, num_sigmoids=3)
    return perturbed(paper_bijection(key, 3, 2, use_temperature=True, initial_scale=0.2, **sizes), 0.05)


def at(*condition):
    """A sampler of one fixed condition."""
    return lambda rng, bijection: np.array(condition)


class Elementwise(AbstractBijection):
    """An increasing function of one number, given with its inverse; both also return the log of their slope."""

    function: Callable = eqx.field(static=True)
    inverse_function: Callable = eqx.field(static=True)
    parameters: Any
    shape: ClassVar[tuple[int, ...]] = ()
    cond_shape: ClassVar[None] = None

    def transform_and_log_det(self, x, condition=None):
        return self.function(x, unwrap(self.parameters))

    def inverse_and_log_det(self, y, condition=None):
        return self.inverse_function(y, unwrap(self.parameters))


def transport_at(*point):
    """τ at one (δ, log κ, q)."""
    return Elementwise(
        lambda x, parameters: transport(parameters[0], x, *parameters[1]),
        lambda y, parameters: inverse_transport(parameters[0], y, *parameters[1]),
        NonTrainable(jax.tree.map(jnp.asarray, (load_network(), point))),
    )


def structured_case(n_query, low_temperature, condition):
    """Four variables, corrections of every kind away from zero."""
    X = np.random.default_rng(1).normal(size=(6, 4))
    low, high = (-1.0, 0.25, np.log(low_temperature)), (2.0, 1.25, 0.0)

    def construct(key):
        bijection = StructuredColumns(key, X.T @ X, 6, n_query, low, high, embedding=5, hidden=4)
        return perturbed(bijection, 0.2)

    # Ω gives L through a factorization, exact to rounding times its condition number.
    return Case(construct, condition=condition, tolerance=1e-7, composite=True, sequential=True)


CASES = {
    "sum of sigmoids": Case(
        lambda key: Elementwise(sum_of_sigmoids, inverse_sum_of_sigmoids, perturbed(near_identity(6), 0.5))
    ),
    "positive diagonal": Case(lambda key: PositiveDiagonal(4, 2), parameters=False),
    "Cholesky product": Case(lambda key: CholeskyProduct(3, 3), factor_inputs, parameters=False),
    "Cholesky product, blanket": Case(lambda key: CholeskyProduct(4, 2), factor_inputs, parameters=False),
    "block product": Case(lambda key: BlockProduct(4, 2), factor_inputs, parameters=False),
    "autoregressive": Case(
        lambda key: perturbed(AutoregressiveSumOfSigmoids(key, 5, 2, num_blocks=1, width=9, num_sigmoids=4), 0.2)
    ),
    # Noise of 30 gives entries of L of 15 beside diagonals of e⁻¹⁵: no float32 factorization of Ω returns those.
    "paper": Case(small_paper, tolerance=1e-7, tolerance_float32=1e-2, composite=True),
    "transport": Case(lambda key: transport_at(1.5, 1.0, 0.5), parameters=False),
    "transport, outside": Case(lambda key: transport_at(-44.0, 9.0, 0.5), parameters=False),
    "structured": structured_case(4, 0.01, at(0.3, 0.6, -0.5)),
    "structured, blanket, T = 1": structured_case(2, 1.0, at(0.3, 0.6, 0.0)),
}


@cache
def constructed(name):
    """The bijection in float32, made once, because each of its many small initial arrays is compiled."""
    with jax.enable_x64(False):
        return CASES[name].construct(jax.random.key(0))


@cache
def prepared(name, double):
    """The bijection, a batch of inputs and a condition; `double` keeps precisions apart in the cache."""
    rng = np.random.default_rng(20231210)
    bijection = jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf), float) if eqx.is_inexact_array(leaf) else leaf, constructed(name)
    )
    x, condition = CASES[name].inputs(rng, bijection), CASES[name].condition(rng, bijection)
    return bijection, jnp.asarray(x, float), None if condition is None else jnp.asarray(condition, float)


def forward(bijection, x, condition):
    """A batch of transforms, each with its log determinant."""
    return jax.vmap(lambda x: bijection.transform_and_log_det(x, condition))(x)


def backward(bijection, y, condition):
    return jax.vmap(lambda y: bijection.inverse_and_log_det(y, condition))(y)


run_forward, run_backward = filter_jit(forward), filter_jit(backward)  # compiled once per case and precision


def assert_close(got, expected, tolerance):
    """Compare relative to 1 + |expected|."""
    np.testing.assert_array_less(np.abs(got - expected), tolerance * (1 + np.abs(expected)))


def cases(keep=lambda case: True):
    return pytest.mark.parametrize("name", [name for name, case in CASES.items() if keep(case)])


every_case, elementary_case = cases(), cases(lambda case: not case.sequential)


@pytest.mark.slow
@every_case
@pytest.mark.usefixtures("x64")
def test_round_trip(name):
    bijection, x, condition = prepared(name, True)
    y, log_det = run_forward(bijection, x, condition)
    x_again, inverse_log_det = run_backward(bijection, y, condition)
    assert y.shape == x.shape and log_det.shape == (len(x),)
    assert_close(x_again, x, CASES[name].tolerance)
    assert_close(run_forward(bijection, x_again, condition)[0], y, CASES[name].tolerance)
    assert_close(inverse_log_det, -log_det, CASES[name].tolerance)


@elementary_case
@pytest.mark.usefixtures("x64")
def test_log_det_is_that_of_the_jacobian(name):
    """Also: the inverse, whose derivatives are implicit, has the inverse Jacobian, and vmap gives the same values."""
    bijection, x, condition = prepared(name, True)
    size = x[0].size

    @filter_jit
    def jacobians(bijection, x):
        def transform(x):
            y, log_det = bijection.transform_and_log_det(x, condition)
            return y, (y, log_det)

        jacobian, (y, log_det) = jax.jacfwd(transform, has_aux=True)(x)
        inverse = None if CASES[name].composite else jax.jacfwd(bijection.inverse)(y, condition)
        return y, log_det, jacobian, inverse

    y, log_det, jacobian, inverse = jacobians(bijection, x[0])
    jacobian = jacobian.reshape(size, size)
    assert_close(log_det, np.linalg.slogdet(jacobian)[1], CASES[name].tolerance)
    if inverse is not None:
        assert_close(inverse.reshape(size, size) @ jacobian, np.eye(size), 10 * CASES[name].tolerance)
    batch, batch_log_det = run_forward(bijection, x, condition)
    assert_close(y, batch[0], 1e-12)
    assert_close(log_det, batch_log_det[0], 1e-12)


@pytest.mark.slow
@cases(lambda case: case.sequential)
@pytest.mark.usefixtures("x64")
def test_log_det_is_that_of_central_differences(name):
    """As above, with the transform that is already compiled, for a batch of 4."""
    bijection, x, condition = prepared(name, True)
    x, step = np.asarray(x[0]), 1e-5
    moves = np.concatenate([step * np.eye(x.size), -step * np.eye(x.size), np.zeros((-2 * x.size % 4, x.size))])
    batches = [run_forward(bijection, jnp.asarray(x + move), condition) for move in np.split(moves, len(moves) // 4)]
    y, log_det = (np.concatenate(values) for values in zip(*batches, strict=True))
    jacobian = (y[: x.size] - y[x.size : 2 * x.size]) / (2 * step)
    np.testing.assert_allclose(np.linalg.slogdet(jacobian)[1], np.mean(log_det[: 2 * x.size]), atol=1e-6)


@pytest.mark.slow
@cases(lambda case: case.parameters and not case.sequential)
@pytest.mark.usefixtures("x64")
def test_every_parameter_has_a_finite_gradient(name):
    """Forward, and through the inverse: f(f⁻¹(y; θ); θ) = y for every θ, so its gradient in θ is 0."""
    bijection, x, condition = prepared(name, True)
    parameters, static = eqx.partition(
        bijection, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, NonTrainable)
    )
    weights = jnp.asarray(np.random.default_rng(0).normal(size=x.shape))

    def loss(parameters):
        y, log_det = forward(eqx.combine(parameters, static), x, condition)
        return jnp.sum(weights * y) + jnp.sum(log_det), y

    def around(parameters, y):
        bijection = eqx.combine(parameters, static)
        return jnp.sum(weights * forward(bijection, backward(bijection, y, condition)[0], condition)[0])

    @jit
    def gradients(parameters):
        gradient, y = jax.grad(loss, has_aux=True)(parameters)
        return gradient, None if CASES[name].composite else jax.grad(around)(parameters, y)

    assert jax.tree.leaves(parameters)
    direct, trivial = gradients(parameters)
    for path, gradient in jax.tree_util.tree_leaves_with_path(direct):
        assert np.all(np.isfinite(gradient)), jax.tree_util.keystr(path)
        assert np.any(gradient != 0), jax.tree_util.keystr(path)
    scale = max(np.max(np.abs(leaf)) for leaf in jax.tree.leaves(direct))
    for path, gradient in jax.tree_util.tree_leaves_with_path(trivial):
        np.testing.assert_allclose(gradient, 0, atol=1e-7 * scale, err_msg=jax.tree_util.keystr(path))


@pytest.mark.slow
@elementary_case
def test_round_trip_in_float32(name):
    bijection, x, condition = prepared(name, False)
    y, log_det = run_forward(bijection, x, condition)
    x_again, inverse_log_det = run_backward(bijection, y, condition)
    assert {a.dtype.name for a in (y, log_det, x_again, inverse_log_det)} == {"float32"}
    assert_close(x_again, x, CASES[name].tolerance_float32)
    assert_close(inverse_log_det, -log_det, CASES[name].tolerance_float32)


@pytest.mark.slow
@every_case
def test_far_tails(name):
    """Float32 at |x| = 30 in every element, signs mixed."""
    bijection, x, condition = prepared(name, False)
    x = 30 * np.where(np.asarray(x) < 0, -1, 1).astype(np.float32)
    if CASES[name].inputs is factor_inputs:
        x[:, diagonal_positions(bijection.n_features, bijection.n_query)] = 30
    y, log_det = run_forward(bijection, jnp.asarray(x), condition)
    assert np.all(np.isfinite(y)) and np.all(np.isfinite(log_det))
    if not CASES[name].composite:
        x_again, inverse_log_det = run_backward(bijection, y, condition)
        assert_close(x_again, x, CASES[name].tolerance_float32)
        assert_close(inverse_log_det, -log_det, CASES[name].tolerance_float32)


@pytest.mark.slow
@every_case
def test_jit_and_vmap_do_not_change_the_transform(name):
    """One transform without compilation against the compiled batch."""
    bijection, x, condition = prepared(name, False)
    y, log_det = run_forward(bijection, x, condition)
    y_one, log_det_one = bijection.transform_and_log_det(x[1], condition)
    assert_close(y_one, y[1], 1e-4)
    assert_close(log_det_one, log_det[1], 1e-4)


@pytest.mark.slow
def test_jit_does_not_change_an_inverse():
    """Running without compilation is slow, so only the smallest map that has a root finder is tested."""
    bijection, x, condition = prepared("sum of sigmoids", False)
    y, _ = run_forward(bijection, x, condition)
    x_again, inverse_log_det = run_backward(bijection, y, condition)
    x_one, log_det_one = bijection.inverse_and_log_det(y[1], condition)
    assert_close(x_one, x_again[1], 1e-4)
    assert_close(log_det_one, inverse_log_det[1], 1e-4)


@elementary_case
def test_transform_uses_no_factorization(name):
    """LAPACK calls inside a scanned training loop have hung on the CPU backend."""
    bijection, x, condition = prepared(name, False)
    text = str(jax.make_jaxpr(lambda x: bijection.transform_and_log_det(x, condition))(x[0]))
    assert not any(f" {word}[" in text for word in ("cholesky", "triangular_solve", "lu", "eigh", "qr"))


# The tests below are particular to one map.


@pytest.mark.usefixtures("x64")
def test_sum_of_sigmoids_is_the_published_formula(rng):
    z, raw = rng.normal(size=7) * 3, rng.normal(size=(7, 11))
    v, w, b = np.exp(raw[:, :3]), np.logaddexp(raw[:, 3:6], 0) + 1e-3, raw[:, 6:9]
    a, s = np.logaddexp(raw[:, 9], 0) + 1e-3, np.logaddexp(raw[:, 10], 0)
    mixture = np.sum(v / v.sum(1, keepdims=True) / (1 + np.exp(-w * z[:, None] - b)), 1)
    expected = a * mixture + np.logaddexp(z - s, 0) - np.logaddexp(-z - s, 0)
    np.testing.assert_allclose(jit(sum_of_sigmoids)(jnp.asarray(z), jnp.asarray(raw))[0], expected, rtol=1e-12)


def test_sum_of_sigmoids_is_increasing_and_has_slope_one_in_its_tails():
    raw = perturbed(near_identity(8), 1.0)
    z = jnp.asarray(np.concatenate([-np.geomspace(1, 1e8, 99)[::-1], np.geomspace(1, 1e8, 99)]), jnp.float32)
    y, log_derivative = jit(sum_of_sigmoids)(z, raw)
    assert np.all(np.diff(y) > 0)
    np.testing.assert_allclose(log_derivative[np.abs(z) > 100], 0, atol=1e-6)
    z_again, _ = jit(inverse_sum_of_sigmoids)(y, raw)
    np.testing.assert_allclose(z_again, z, rtol=1e-6, atol=1e-5)


def test_sum_of_sigmoids_stays_finite_where_the_map_is_flat():
    """With a = 0.001 and s = 40 the slope at 0 is e⁻⁴⁰ and the inverse ill-conditioned; all values stay finite."""
    raw = jnp.asarray([0.0, 0.0, 0.0, 5.0, 5.0, 5.0, 0.0, 0.0, 0.0, -50.0, 40.0])
    z = jnp.asarray([-30.0, -10.0, 0.0, 10.0, 30.0])
    y, log_derivative = jit(sum_of_sigmoids)(z, raw)
    assert np.all(np.isfinite(log_derivative))
    z_again, _ = jit(inverse_sum_of_sigmoids)(y, raw)
    np.testing.assert_allclose(jit(sum_of_sigmoids)(z_again, raw)[0], y, atol=1e-6)
    gradient = jit(jax.grad(lambda raw: jnp.sum(sum_of_sigmoids(z, raw)[1])))(raw)
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize(("num_sigmoids", "error"), [(8, 6e-3), (30, 5e-4)])
def test_near_identity(num_sigmoids, error):
    z = jnp.linspace(-8, 8, 101)
    y, log_derivative = jit(sum_of_sigmoids)(z, near_identity(num_sigmoids))
    np.testing.assert_allclose(y, z + 3, atol=error)
    np.testing.assert_allclose(log_derivative, 0, atol=error)


def test_sum_of_sigmoids_raises_for_a_wrong_number_of_parameters():
    with pytest.raises(ValueError, match="3K \\+ 2 parameters"):
        sum_of_sigmoids(jnp.zeros(()), jnp.zeros(7))


@pytest.mark.usefixtures("x64")
def test_inverse_has_second_derivatives():
    """x³ + θx = y at x = 2, θ = 1: x″(y) = −f″/f′³ = −12/13³."""

    def root(y, theta):
        return invert_increasing(lambda x: (x**3 + theta * x, jnp.log(3 * x**2 + theta)), y, -10.0, 10.0)

    y, theta = jnp.asarray(10.0), jnp.asarray(1.0)
    np.testing.assert_allclose(jit(jax.grad(root, (0, 1)))(y, theta), [1 / 13, -2 / 13])
    np.testing.assert_allclose(jit(jax.grad(jax.grad(root)))(y, theta), -12 / 13**3)


@pytest.mark.usefixtures("x64")
def test_an_entry_of_the_autoregressive_layer_depends_on_those_before_it_only():
    bijection, x, condition = prepared("autoregressive", True)
    jacobian, by_condition = jit(jax.jacobian(bijection.transform, (0, 1)))(x[0], condition)
    assert np.all(np.triu(jacobian, 1) == 0)
    assert np.all(jacobian[np.tril_indices(5)] != 0), "an entry does not depend on one before it"
    assert np.all(by_condition != 0), "an entry does not depend on the condition"


@pytest.mark.usefixtures("x64")
def test_block_product_of_the_full_matrix_is_the_cholesky_product():
    _, x, _ = prepared("Cholesky product", True)
    for got, expected in zip(
        forward(BlockProduct(3, 3), x, None), forward(CholeskyProduct(3, 3), x, None), strict=True
    ):
        np.testing.assert_allclose(got, expected)


@pytest.mark.usefixtures("x64")
def test_products_give_the_rows_of_the_precision_matrix():
    _, x, _ = prepared("Cholesky product, blanket", True)
    columns = to_columns(x[0], 4, 2)
    rows = columns[:2] @ columns.T
    product = to_columns(CholeskyProduct(4, 2).transform(x[0]), 4, 2)
    np.testing.assert_allclose(product, np.tril(rows.T))
    block = to_columns(BlockProduct(4, 2).transform(x[0]), 4, 2)
    np.testing.assert_allclose(block[:2], np.tril(rows[:, :2]))
    np.testing.assert_array_equal(block[2:], columns[2:])


@pytest.mark.slow
def test_paper_starts_near_the_diagonal_it_is_given_and_ignores_temperature():
    bijection = paper_bijection(
        jax.random.key(0), 3, 3, num_layers=1, num_blocks=1, width=8, initial_diagonal=(1.0, 2.0, 3.0)
    )
    assert bijection.shape == (6,) and bijection.cond_shape == (3,)
    z = jax.random.normal(jax.random.key(1), (200, 6))
    omega, _ = run_forward(bijection, z, jnp.asarray([0.3, 0.5, 0.0]))
    np.testing.assert_allclose(np.mean(omega, 0)[diagonal_positions(3, 3)], [1, 2, 3], atol=0.2)
    np.testing.assert_array_equal(run_forward(bijection, z, jnp.asarray([0.3, 0.5, -4.0]))[0], omega)
    assert np.any(run_forward(bijection, z, jnp.asarray([0.2, 0.5, 0.0]))[0] != omega)


def test_messages_name_the_wrong_argument():
    with pytest.raises(ValueError, match="n_query must lie between 1 and n_features = 3; got 4"):
        CholeskyProduct(3, 4)
    with pytest.raises(ValueError, match="product must be 'block' or 'cholesky'"):
        paper_bijection(jax.random.key(0), 3, 2, product="both")
