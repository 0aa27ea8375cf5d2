"""The shipped network: densities, gradients, symmetries and units."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paramax import unwrap

from ggmflow.flow.structured_columns import StructuredColumns
from ggmflow.flow.structured_geometry import geometry_at, shipped_at
from ggmflow.flow.structured_gradient import condition_weights, path_derivative_loss, sample_columns
from ggmflow.flow.structured_network import (
    arrays_of_network,
    initial_network,
    network_from_arrays,
)
from ggmflow.model.target import cholesky_columns, precision_from_entries, unnormalized_log_prob

FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
jit = partial(eqx.filter_jit, compiler_options=FAST)  # compiling takes longer than running
CONDITIONS = jnp.array([[0.3, 0.6, -0.5], [1.5, 1.1, 0.0]], jnp.float32)
NUM_DRAWS = 2


def draws_at(flow, key, condition, num_draws):
    """Draws under one condition."""
    return sample_columns(flow, key, flow.geometry(condition), num_draws)


@cache
def moved_network():
    """A network with all weights away from zero."""
    rng = np.random.default_rng(3)
    start = initial_network(jax.random.key(0))
    return jax.tree.map(lambda leaf: (leaf + 0.05 * rng.normal(size=leaf.shape)).astype(np.float32), start)


def make_flow(S, n, n_query, network):
    """A flow in the default precision with no learned corrections, whose network can be differentiated."""
    flow = StructuredColumns(
        jax.random.key(0),
        S,
        n,
        n_query,
        (-1.0, 0.25, -2.0),
        (2.0, 1.25, 0.0),
        embedding=4,
        hidden=3,
        pretrained=network,
    )
    flow = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, flow)
    return flow if network is None else eqx.tree_at(lambda each: each.pretrained, flow, flow.pretrained.tree)


@cache
def table(d=4, n=7):
    X = np.random.default_rng(1).normal(size=(n, d)) @ np.random.default_rng(2).normal(size=(d, d))
    return X.T @ X, n


@jit
def ratio(drawing, scoring, z, conditions):
    """log q_scoring − log p̃ of the draws that another flow makes of noise (b, D)."""

    def one(z, condition):
        entries, _ = drawing.transform_and_log_det(z, condition)
        noise, log_det = scoring.inverse_and_log_det(entries, condition)
        return jnp.sum(-0.5 * noise**2 - 0.5 * np.log(2 * np.pi).item()) + log_det, entries

    log_q, entries = jax.vmap(one)(z, conditions)
    return log_q, entries


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("n_query", [4, 2])
def test_gradient_in_the_weights_is_the_path_derivative(n_query):
    """Against central differences along one direction for each array of weights; conditions count by √(T/T_max)."""
    S, n = table()
    flow, conditions, step = make_flow(S, n, n_query, moved_network()), CONDITIONS.astype(float), 1e-5
    z = jax.random.normal(jax.random.key(7), (*flow.shape, len(conditions), NUM_DRAWS))
    (_, log_ratio), gradient = jit(eqx.filter_value_and_grad(path_derivative_loss, has_aux=True))(flow, z, conditions)
    flat, each = z.reshape(len(z), -1).T, jnp.repeat(conditions, NUM_DRAWS, 0)
    weight = np.exp(0.5 * np.asarray(each[:, 2]))
    leaves, structure = jax.tree.flatten(flow.pretrained)

    def loss(leaves):
        moved = eqx.tree_at(lambda each: each.pretrained, flow, jax.tree.unflatten(structure, leaves))
        log_q, entries = ratio(moved, flow, flat, each)
        return np.asarray(log_q - log_targets(flow, entries, each))

    np.testing.assert_allclose(loss(leaves), log_ratio.ravel(), atol=1e-7)
    gradients = jax.tree.leaves(gradient.pretrained)
    assert len(gradients) == len(leaves) == 21
    for k, leaf in enumerate(leaves):
        direction = np.random.default_rng(k).normal(size=leaf.shape)
        moved = ([*leaves[:k], leaf + sign * step * direction, *leaves[k + 1 :]] for sign in (1, -1))
        ends = [np.mean(weight * loss(each)) for each in moved]
        found = np.sum(gradients[k] * direction)
        np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-5, err_msg=str(k))


def test_conditions_count_alike_at_one_temperature_and_without_the_network():
    S, n = table()
    for T_low, network, expected in (
        (-2.0, moved_network(), np.exp([-0.25, 0.0])),
        (-2.0, None, [1.0, 1.0]),
        (0.0, moved_network(), [1.0, 1.0]),
    ):
        flow = StructuredColumns(jax.random.key(0), S, n, 4, (-1, 0.25, T_low), (2, 1.25, 0), pretrained=network)
        np.testing.assert_allclose(condition_weights(unwrap(flow), CONDITIONS), expected, rtol=1e-6)


@jit
def log_targets(flow, entries, conditions):
    flow = unwrap(flow)

    def one(entries, condition):
        columns = cholesky_columns(precision_from_entries(entries, len(flow.scatter), flow.n_query))
        values = jnp.exp(condition[0]), condition[1], jnp.exp(condition[2])
        return unnormalized_log_prob(columns, flow.scatter, flow.n_samples, *values)

    return jax.vmap(one)(entries, conditions)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("n_query", [4, 2])
def test_what_is_prepared_changes_no_loss(n_query):
    """Training computes the network's outputs in another program: losses and gradients are the same."""
    S, n = table()
    flow, conditions = make_flow(S, n, n_query, moved_network()), CONDITIONS.astype(float)
    z = jax.random.normal(jax.random.key(7), (*flow.shape, len(conditions), NUM_DRAWS))
    prepared = jax.vmap(lambda condition: shipped_at(unwrap(flow), condition))(conditions)

    def run(prepared):
        (_, log_ratio), gradient = jit(eqx.filter_value_and_grad(path_derivative_loss, has_aux=True))(
            flow, z, conditions, prepared
        )
        return [log_ratio, *jax.tree.leaves(gradient.learned)]

    one, other = run(prepared), run(None)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    assert max(np.abs(leaf).max() for leaf in one[1:] if leaf.size) > 1e-3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("n_query", [4, 2])
def test_density_of_draws_agrees_with_the_inverse(n_query):
    S, n = table()
    flow, condition = make_flow(S, n, n_query, moved_network()), CONDITIONS[0].astype(float)
    entries, log_q, log_p = jit(draws_at)(flow, jax.random.key(5), condition, 3)
    each = jnp.repeat(condition[None], 3, 0)
    z = jax.random.normal(jax.random.key(5), (*flow.shape, 3)).T
    through_inverse, same = ratio(flow, flow, z, each)
    np.testing.assert_allclose(entries.T, same, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(log_q, through_inverse, atol=1e-7)
    np.testing.assert_allclose(log_p, log_targets(flow, entries.T, each), rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_flipping_a_variable_flips_the_shifts_of_its_entries_only():
    S, n = table()
    sign = np.array([1.0, -1.0, 1.0, -1.0])
    one, other = (
        geometry_at(unwrap(make_flow(scatter, n, 4, moved_network())), CONDITIONS[0].astype(float))
        for scatter in (S, S * sign * sign[:, None])
    )
    expected = np.array(one.correction)
    below = np.tril(np.ones((4, 4), bool), -1)
    flips = np.where(below, sign[:, None] * sign, 1.0)
    expected[1], expected[4] = expected[1] * flips, expected[4] * flips
    np.testing.assert_allclose(other.correction, expected, rtol=1e-6, atol=1e-8)
    assert np.abs(one.correction[:, below]).min() > 1e-6  # every entry is corrected
    np.testing.assert_allclose(
        other.couplings.matrix, one.couplings.matrix * sign * sign[:, None], rtol=1e-6, atol=1e-9
    )
    for name in ("gate", "out", "diagonal"):
        np.testing.assert_allclose(getattr(other.couplings, name), getattr(one.couplings, name), rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_units_do_not_matter():
    """Ω in units of c⁻²: S and λ^{1/q} grow by c², which leaves κ_ij alone if λI is negligible beside S."""
    S, n = table()
    c, q = 10.0, 0.7
    condition = jnp.array([np.log(1e-9), q, 0.0])
    scaled = condition.at[0].add(q * 2 * np.log(c))
    one = geometry_at(unwrap(make_flow(S, n, 4, moved_network())), condition)
    other = geometry_at(unwrap(make_flow(c**2 * S, n, 4, moved_network())), scaled)
    np.testing.assert_allclose(other.correction, one.correction, rtol=1e-4, atol=1e-5)


def test_a_network_before_its_training_is_the_plain_flow():
    S, n = table()
    one, other = (
        geometry_at(unwrap(make_flow(S, n, 4, network)), CONDITIONS[1].astype(float))
        for network in (initial_network(jax.random.key(0)), None)
    )
    for name in ("A", "U", "scale", "correction"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert not np.any(one.couplings.out) and not np.any(one.couplings.diagonal)


def test_arrays_give_the_same_network():
    network = moved_network()
    same = network_from_arrays(arrays_of_network(network))
    assert jax.tree.structure(same) == jax.tree.structure(network)
    for one, other in zip(jax.tree.leaves(same), jax.tree.leaves(network), strict=True):
        np.testing.assert_array_equal(one, other)
