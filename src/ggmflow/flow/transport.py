"""τ, the one-dimensional transport all entries share: standard normal noise to a Gaussian with an l_q cusp at zero.

    z ~ N(0, 1)  ↦  x = τ(z; δ, log κ, q)  ~  exp(−½(x − δ)² − κ|x|^q) / Z

    v = z-part + location:   a Σ_k v_k (σ(w_k(z − b_k)) − ½) + softplus(z − s) − softplus(−z − s) + location
    x = e^g v ∏_p (ε_p + v²)^{m_p}

A sum of sigmoids carries noise to spike and slab, a product of signed powers sharpens the spike at the cusp. A small
network of (δ, log κ, q), trained once by `python -m experiments.transport` and shipped, gives their parameters. By
construction τ(−z; −δ) = −τ(z; δ). Outside the trained range one of spike and slab dominates. If it is the slab, τ is a
Gaussian shift, x = x* + ς z with the slab's mode and width. If it is the spike, x² is negligible there, and
τ(z; δ, log κ) = τ(z; δ/c, log κ − q log c)/c, with c such that both arguments are in the range.
Parameters lie on the first axis, so that every operation runs along contiguous entries.
"""

import math
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid, softplus
from jaxtyping import Array, Float

from ggmflow.flow.monotone import invert_increasing
from ggmflow.storage.package_files import package_file

NUM_FEATURES = 9
# The range of the training script.
DELTA_RANGE, LOG_KAPPA_RANGE = 40.0, (-8.0, 6.0)
# Hidden units of the two networks that are shipped. Blankets use the small one, which draws faster: of 6 among 318
# variables it lowered the ELBO by 1.4 nats.
HIDDEN, HIDDEN_SMALL = 64, 32
_MIN_WIDTH = 1e-2
_PIECE = 4096  # entries
_MAX_HIDDEN, _MAX_PAIRS = 1024, 64  # in files

Entries = Float[Array, "..."]
PerParameter = Float[Array, "parameters ..."]  # one row for each of several parameters


def num_parameters(num_pairs: int) -> int:
    """Parameters of τ with K pairs of sigmoids and K + 1 powers."""
    return 6 * num_pairs + 5 + 2 * (num_pairs + 1)


def num_pairs(raw: PerParameter) -> int:
    """K, from the parameters."""
    return (len(raw) - num_parameters(0)) // 8


class Network(NamedTuple):
    """Weights of the network that gives the parameters of τ: three layers, silu between them."""

    weight_1: Float[Array, "hidden features"]
    bias_1: Float[Array, " hidden"]
    weight_2: Float[Array, "hidden hidden"]
    bias_2: Float[Array, " hidden"]
    weight_3: Float[Array, "parameters hidden"]
    bias_3: Float[Array, " parameters"]


@cache
def load_network(hidden: int = HIDDEN) -> Network:
    """The shipped weights with `HIDDEN` or `HIDDEN_SMALL` hidden units, as NumPy arrays in single precision."""
    with package_file(f"flow/transport_{hidden}.npz").open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        return Network(**{name: arrays[name] for name in Network._fields})


def network_of_zeros(hidden: int, num_pairs: int) -> Network:
    """A network of given sizes, for the shapes of its arrays."""
    if not (0 < hidden <= _MAX_HIDDEN and 0 < num_pairs <= _MAX_PAIRS):
        raise ValueError(f"no network of τ has {hidden} hidden units and {num_pairs} pairs of sigmoids")
    sizes = (NUM_FEATURES, hidden, hidden, num_parameters(num_pairs))
    shapes = [shape for n_in, n_out in pairwise(sizes) for shape in ((n_out, n_in), (n_out,))]
    zeros: list[Any] = [np.zeros(shape, np.float32) for shape in shapes]
    return Network(*zeros)


def network_sizes(network: Network) -> tuple[int, int]:
    """The arguments of `network_of_zeros` that give a network of the same shape."""
    return len(network.bias_1), num_pairs(network.bias_3)


class Shape(NamedTuple):
    """Parameters of τ, which do not depend on z."""

    raw: PerParameter
    slab: Entries  # x*, approximate mode of the slab
    log_spike: Entries  # log of the width of the spike
    odd: Entries  # δ/√(1+δ²), the factor of terms that change sign with δ
    inside: Entries  # 1 in the trained range, 0 far outside
    shift: Entries  # x*/ς, outside
    log_outside: Entries  # log of the factor outside: ς/c


def transport(network: Network, z: Entries, delta: Entries, log_kappa: Entries, q: Entries) -> tuple[Entries, Entries]:
    """τ(z) and log dτ/dz, elementwise.

    Parameters
    ----------
    network
        Weights.
    z
        Noise.
    delta, log_kappa, q
        Centre of the Gaussian in its standard deviations, log of the penalty κ, exponent. All broadcast together.
    """
    z, delta, log_kappa, q = jnp.broadcast_arrays(z, delta, log_kappa, q)
    # Usually all arguments are in the trained range, and need not be mapped into it.
    is_inside = (jnp.abs(delta) < DELTA_RANGE - 1) & (log_kappa > LOG_KAPPA_RANGE[0]) & (log_kappa < LOG_KAPPA_RANGE[1])
    inner = jax.lax.cond(jnp.all(is_inside), _stay_in_range, _map_into_range, delta, log_kappa, q)
    return _apply(z, _shape(network, inner, q))


def general_transport(
    network: Network, z: Entries, delta: Entries, log_kappa: Entries, q: Entries
) -> tuple[Entries, Entries]:
    """`transport` without its shortcut for arguments in the trained range; the network runs once for each δ."""
    return _apply(z, _shape(network, _map_into_range(delta, log_kappa, q), q))


class Partials(NamedTuple):
    """τ and log dτ/dz with their first derivatives, elementwise."""

    x: Entries
    log_dx: Entries
    x_of: tuple[Entries, Entries, Entries]  # ∂x/∂(z, δ, log κ)
    log_dx_of: tuple[Entries, Entries, Entries]


def transport_partials(network: Network, z: Entries, delta: Entries, log_kappa: Entries, q: Entries) -> Partials:
    """τ, log dτ/dz and the derivatives of both in z, δ and log κ; arguments of one shape."""
    # In pieces whose hidden layers stay in the cache.
    size = min(z.size, _PIECE)

    def pieces(value: Entries) -> Float[Array, "pieces size"]:
        return jnp.pad(value.reshape(-1), (0, -z.size % size), mode="edge").reshape(-1, size)

    found = jax.lax.map(lambda piece: _partials(network, *piece), tuple(map(pieces, (z, delta, log_kappa, q))))
    return jax.tree.map(lambda value: value.reshape(-1)[: z.size].reshape(z.shape), found)


def _partials(network: Network, z: Entries, delta: Entries, log_kappa: Entries, q: Entries) -> Partials:
    # Forward mode: three tangents share one evaluation, and nothing is transposed.
    one, zero = jnp.ones_like(z), jnp.zeros_like(z)

    def function(z, delta, log_kappa):
        return general_transport(network, z, delta, log_kappa, q)

    (x, log_dx), of_delta = jax.jvp(function, (z, delta, log_kappa), (zero, one, zero))
    _, of_kappa = jax.jvp(function, (z, delta, log_kappa), (zero, zero, one))
    shape = _shape(network, _map_into_range(delta, log_kappa, q), q)
    _, of_z = jax.jvp(lambda z: _apply(z, shape), (z,), (one,))
    x_of, log_dx_of = zip(of_z, of_delta, of_kappa, strict=True)
    return Partials(x, log_dx, x_of, log_dx_of)


def inverse_transport(
    network: Network, x: Entries, delta: Entries, log_kappa: Entries, q: Entries
) -> tuple[Entries, Entries]:
    """z = τ⁻¹(x) and log dz/dx, elementwise; numerical, with exact derivatives."""
    x, delta, log_kappa, q = jnp.broadcast_arrays(x, delta, log_kappa, q)
    shape = _shape(network, _map_into_range(delta, log_kappa, q), q)
    # First undo the powers for v (in log|v|, where they are nearly straight), then the sum of sigmoids for z.
    scale, powers, log_eps = _power_parameters(shape)
    nonzero = x != 0
    log_x = jnp.log(jnp.abs(jnp.where(nonzero, x, 1.0))) - scale

    def log_power(u):
        # log|x| − g as a function of u = log|v|, and the log of its slope
        log_base = jnp.logaddexp(log_eps, 2 * u)
        return u + jnp.sum(powers * log_base, 0), jnp.log1p(jnp.sum(2 * powers * jnp.exp(2 * u - log_base), 0))

    # The slope is at least 1, so the root is no farther from log|x| − g than the function there is off.
    excess = log_power(log_x)[0] - log_x
    u = invert_increasing(log_power, log_x, log_x - jnp.maximum(excess, 0.0), log_x + jnp.maximum(-excess, 0.0))
    v = jnp.where(nonzero, jnp.sign(x) * jnp.exp(u), 0.0)
    location, amplitude, flat = _sum_parameters(shape)
    middle = v - location
    z = invert_increasing(lambda z: _sum(z, shape), v, middle - flat - amplitude, middle + flat + amplitude)
    return z, -_apply(z, shape)[1]


class Slab(NamedTuple):
    """The mode away from zero; arbitrary numbers where there is none."""

    mode: Entries
    log_width: Entries
    log_odds: Entries  # against the spike


def _slab(delta: Entries, log_kappa: Entries, q: Entries) -> Slab:
    """Laplace's approximation of the slab: x* solves x + κq x^{q−1} = δ."""
    # Newton's method in u = log x, where the left side is convex, started at or right of the root.
    log_far, log_pull = 0.5 * jnp.log1p(delta * delta), log_kappa + jnp.log(q)
    u = jnp.where(q > 1, jnp.minimum(log_far, (log_far - log_pull) / jnp.maximum(q - 1, 1e-3)), log_far)

    def improve(u):
        share = sigmoid(log_pull + (q - 2) * u)
        excess = jnp.logaddexp(u, log_pull + (q - 1) * u) - log_far
        return jnp.clip(u - excess / jnp.maximum(1 + (q - 2) * share, 0.1), -30.0, log_far)

    u = jax.lax.stop_gradient(improve(improve(improve(jnp.maximum(u, -30.0)))))
    u = improve(u)  # at the root, one Newton step has the derivatives of the root
    log_width = -0.5 * jnp.log(jnp.maximum(1 + (q - 1) * jnp.exp(log_pull + (q - 2) * u), 0.1))
    x, log_spike = jnp.exp(u), -softplus(log_pull / q)
    height = jnp.exp(log_far) * x - 0.5 * x * x - jnp.exp(log_kappa + q * u)
    log_odds = height + jnp.minimum(log_width, u) - log_spike  # the slab ends at zero
    return Slab(delta * jnp.exp(u - log_far), log_width, log_odds)


class Inner(NamedTuple):
    """δ and log κ mapped into the trained range, and the parameters that act outside it."""

    delta: Entries
    log_kappa: Entries
    inside: Entries
    shift: Entries  # x*/ς
    log_outside: Entries  # log ς/c


def _map_into_range(delta: Entries, log_kappa: Entries, q: Entries) -> Inner:
    """Rescale where the spike dominates, use the slab's mode and width where it does; in the range nothing changes."""
    slab = _slab(delta, log_kappa, q)
    # c of the module's docstring, 1 where the slab dominates.
    log_c = jnp.maximum(0.5 * jnp.log1p(delta * delta) - math.log(DELTA_RANGE), (log_kappa - LOG_KAPPA_RANGE[1]) / q)
    log_c = jnp.clip(log_c, 0.0, 40.0) * sigmoid(-slab.log_odds)
    delta, log_kappa = delta * jnp.exp(-log_c), log_kappa - q * log_c
    inside = _fade(DELTA_RANGE - jnp.abs(delta), 8.0) * _fade(log_kappa - LOG_KAPPA_RANGE[0], 2.0)
    inside *= _fade(LOG_KAPPA_RANGE[1] - log_kappa, 2.0)
    shift, log_outside = slab.mode * jnp.exp(-slab.log_width), (1 - inside) * slab.log_width - log_c
    return Inner(delta, jnp.minimum(log_kappa, LOG_KAPPA_RANGE[1] + 2), inside, shift, log_outside)


def _stay_in_range(delta: Entries, log_kappa: Entries, q: Entries) -> Inner:
    return Inner(delta, log_kappa, jnp.ones_like(delta), jnp.zeros_like(delta), jnp.zeros_like(delta))


def _shape(network: Network, inner: Inner, q: Entries) -> Shape:
    """Parameters from the network, whose features describe the positions and weights of spike and slab."""
    delta, log_kappa, inside, shift, log_outside = inner
    square = delta * delta
    slab, threshold, log_spike, log_odds = _spike_and_slab(delta, log_kappa, q)
    features = jnp.stack(
        [
            jnp.log1p(square) / 2,
            jnp.log1p(slab * slab) / 2,
            log_kappa / 3,
            2 * q - 1.5,
            log_spike / 4,
            jnp.tanh(log_odds / 3),
            2 * log_odds / (10 + jnp.abs(log_odds)),
            jnp.log1p(threshold) / 2,
            jnp.log(q),
        ]
    )
    hidden = _silu(_affine(network.weight_1, network.bias_1, features))
    hidden = _silu(_affine(network.weight_2, network.bias_2, hidden))
    raw = _affine(network.weight_3, network.bias_3, hidden)
    return Shape(raw, slab, log_spike, delta * jax.lax.rsqrt(1 + square), inside, shift, log_outside)


def shrink(delta: Entries, log_kappa: Entries, q: Entries) -> tuple[Entries, Entries]:
    """Roughly the mode of the slab, between 0 and δ, and the log odds of the slab against the spike, elementwise."""
    slab, _, _, log_odds = _spike_and_slab(delta, log_kappa, q)
    return slab, log_odds


def _spike_and_slab(delta: Entries, log_kappa: Entries, q: Entries) -> tuple[Entries, Entries, Entries, Entries]:
    """Mode of the slab, first threshold, log width of the spike, and log odds of the slab against the spike."""
    kappa, square = jnp.exp(log_kappa), delta * delta
    # The slab's mode solves x = δ − κq|x|^{q−1}: two steps of a smooth soft threshold, x* ∈ (0, δ).
    exponent = 0.5 * (q - 1)
    threshold = kappa * q * jnp.exp(exponent * jnp.log1p(square))
    slab = softplus(delta - threshold) - softplus(-delta - threshold)
    threshold_1 = kappa * q * jnp.exp(exponent * jnp.log1p(slab * slab))
    slab = softplus(delta - threshold_1) - softplus(-delta - threshold_1)
    log_spike = -softplus((log_kappa + jnp.log(q)) / q)
    height = kappa * jnp.exp(0.5 * q * jnp.log(slab * slab + 1e-6))
    log_odds = 0.5 * square - 0.5 * (delta - slab) ** 2 - height - log_spike
    return slab, threshold, log_spike, log_odds


def _apply(z: Entries, shape: Shape) -> tuple[Entries, Entries]:
    v, log_dv = _sum(z, shape)
    scale, powers, log_eps = _power_parameters(shape)
    square = v * v
    base = jnp.exp(log_eps) + square
    log_factor = jnp.sum(powers * jnp.log(base), 0) + scale
    return v * jnp.exp(log_factor), log_dv + log_factor + jnp.log1p(jnp.sum(2 * powers * square / base, 0))


def _sum(z: Entries, shape: Shape) -> tuple[Entries, Entries]:
    """v and log dv/dz: the sum of sigmoids. They come in pairs that mirror each other when δ changes sign."""
    raw, odd, K = shape.raw, shape.odd, num_pairs(shape.raw)
    centre, move, width, width_odd, weight, weight_odd = (raw[k * K : (k + 1) * K] for k in range(6))
    location, amplitude, flat = _sum_parameters(shape)
    value = softplus(z - flat) - softplus(-z - flat) + location
    slope = sigmoid(z - flat) + sigmoid(-z - flat)
    total = jnp.sum(jnp.exp(weight + odd * weight_odd) + jnp.exp(weight - odd * weight_odd), 0)
    sum_value, sum_slope = jnp.zeros_like(z), jnp.zeros_like(z)
    for sign in (1.0, -1.0):
        v_k, w_k = jnp.exp(weight + sign * odd * weight_odd), softplus(width + sign * odd * width_odd) + _MIN_WIDTH
        s_k = sigmoid(w_k * (z - sign * centre - odd * move))
        sum_value += jnp.sum(v_k * (s_k - 0.5), 0)
        sum_slope += jnp.sum(v_k * w_k * s_k * (1 - s_k), 0)
    factor = amplitude / total
    return value + factor * sum_value, jnp.log(slope + factor * sum_slope)


def _sum_parameters(shape: Shape) -> tuple[Entries, Entries, Entries]:
    """Location, amplitude a and half-width s of the flat part; (x*/ς, 0, 0) outside the trained range: v = z + x*/ς."""
    first = 6 * num_pairs(shape.raw)
    log_amplitude, flat, share, move = shape.raw[first : first + 4]
    inside = shape.inside
    location = inside * (shape.odd * move + shape.slab * sigmoid(share)) + (1 - inside) * shape.shift
    return location, inside * jnp.exp(log_amplitude), inside * softplus(flat)


def _power_parameters(shape: Shape) -> tuple[Entries, PerParameter, PerParameter]:
    """g, exponents m_p and log ε_p."""
    K = num_pairs(shape.raw)
    share, powers, log_eps = jnp.split(shape.raw[6 * K + 4 :], (1, K + 2))
    scale = shape.inside * shape.log_spike * sigmoid(share[0]) + shape.log_outside
    return scale, shape.inside * softplus(powers - 1), jnp.clip(log_eps, -16.0, 4.0)


def _affine(weight: Float[Array, "out in"], bias: Float[Array, " out"], x: PerParameter) -> PerParameter:
    return jnp.tensordot(weight, x, 1) + bias.reshape(bias.shape + (1,) * (x.ndim - 1))


def _silu(x: Entries) -> Entries:
    return x * sigmoid(x)


def _fade(distance: Entries, width: float) -> Entries:
    """1 where distance ≥ 0, 0 where it is ≤ −width, a cubic between."""
    t = jnp.clip(1 + distance / width, 0.0, 1.0)
    return t * t * (3 - 2 * t)
