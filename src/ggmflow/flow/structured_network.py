"""Corrections of the structured flow from one network, trained once on simulated tables and shipped.

    (S, n, λ, q) / T  →  features of every entry  →  rounds of exchange between entries  →  corrections, couplings

Features are free of units, so the network serves every number of variables and rows, every scale and every penalty:
λ enters through κ_ij and through Ψ alone. Flipping the sign of a variable flips the corrections of its entries that are
shifts and leaves the others alone, by construction: a network sees even features only, and shifts are sums of odd ones
with weights from the network.

A round improves estimates x̄ of all entries (in units of σ, from the cusp) by two conditional means of each given the
others, shrunken by the penalty; and it lets an entry see the features of its row, its column, its neighbours and the
fill-in. It also improves estimates of ℓ and of the forces Γ of the penalty, Γ_ij = −d(λ|ω_ij|^q)/dω_ij in the mean,
with which the mode of the posterior satisfies, as far as a round can tell,

    ((S + λI − Γ)L)_ij = 0  for i > j,      ((S + λI − Γ)L)_jj = k_j/ℓ_j.

All rounds share their weights. `python -m experiments.pretrain` trains them.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ggmflow.flow.perceptron import Perceptron, initial_perceptron
from ggmflow.flow.transport import shrink
from ggmflow.storage.package_files import package_file

NUM_ROUNDS = 8
_WIDTH, _HIDDEN, _MESSAGES = 32, 64, 8
_ROW_FEATURES, _ENTRY_FEATURES, _ROUND_FEATURES = 12, 24, 9
_ROUND_OUTPUTS = _WIDTH + 6  # and the weights of the new estimates
_EVEN, _SHIFT, _NOISE_SHIFT, _COUPLINGS = 3, 7, 4, 3
_DIAGONAL = 3
_LARGEST, _FARTHEST = 1e4, 1.5  # estimates in units of σ, and of log ℓ from its typical value

PerEntry = Float[Array, "d s ..."]


class CorrectionNetwork(NamedTuple):
    """Weights of all parts: ridge per row; first features of an entry, a round, and the corrections of an entry."""

    row: Perceptron
    first: Perceptron
    message: Float[Array, "messages+1 width"]
    round: Perceptron
    entry: Perceptron
    diagonal: Perceptron


class Tempered(NamedTuple):
    """Data and condition of one table, divided by T, and the start of the geometry."""

    lam: Float[Array, ""]
    q: Float[Array, ""]
    n: Float[Array, ""]
    scatter: Float[Array, "d d"]
    diagonal: Float[Array, " d"]  # S_ii + λ
    excess: Float[Array, " d"]  # 1/v − 1
    pinned: Float[Array, ""]


class Factors(NamedTuple):
    """Ψ = UUᵀ, A = U⁻ᵀ, σ, the ridge, and the degrees of freedom of every ℓ_j."""

    U: Float[Array, "d d"]
    A: Float[Array, "d d"]
    scale: Float[Array, " d"]
    ridge: Float[Array, " d"]
    degrees: Float[Array, " s"]


class Couplings(NamedTuple):
    """Couplings of a column to its fill-in: shifts of δ_ij and of ℓ_j, given f_kj = squashed fill-in of row k > j.

    δ_ij += out_ij Σ_{k>i} matrix_ki gate_kj f_kj,      shift_j += Σ_k diagonal_kj f_kj²
    """

    matrix: Float[Array, "d d ..."]  # (k, i)
    gate: Float[Array, "d s ..."]
    out: Float[Array, "d s ..."]
    diagonal: Float[Array, "d s ..."]


@cache
def load_correction_network() -> CorrectionNetwork:
    """The shipped weights, as NumPy arrays in single precision."""
    with package_file("flow/structured_network.npz").open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        return network_from_arrays({name: arrays[name] for name in arrays.files})


def network_from_arrays(arrays: dict[str, np.ndarray]) -> CorrectionNetwork:
    """The network of arrays that `arrays_of_network` gave."""
    skeleton = jax.eval_shape(initial_network, jax.random.key(0))
    leaves, structure = jax.tree.flatten(skeleton)
    return jax.tree.unflatten(structure, [arrays[f"{k:02d}"] for k in range(len(leaves))])


def arrays_of_network(network: CorrectionNetwork) -> dict[str, np.ndarray]:
    """The arrays of a network by their position."""
    return {f"{k:02d}": np.asarray(leaf, np.float32) for k, leaf in enumerate(jax.tree.leaves(network))}


def initial_network(key: Array) -> CorrectionNetwork:
    """Weights with which all corrections are zero."""
    keys = jax.random.split(key, 6)

    def perceptron(key: Array, num_in: int, num_out: int, scale: float) -> Perceptron:
        return initial_perceptron(key, (num_in, _HIDDEN, num_out), scale)

    messages = 4 * _MESSAGES
    return CorrectionNetwork(
        row=perceptron(keys[0], _ROW_FEATURES, 1, 0.0),
        first=perceptron(keys[1], _ENTRY_FEATURES, _WIDTH, 1.0),
        message=jax.random.normal(keys[2], (_MESSAGES + 1, _WIDTH)) / _WIDTH**0.5,
        round=perceptron(keys[3], _WIDTH + _ROUND_FEATURES + messages, _ROUND_OUTPUTS, 0.3),
        entry=perceptron(keys[4], _WIDTH, _EVEN + _SHIFT + _NOISE_SHIFT + _COUPLINGS, 0.0),
        diagonal=perceptron(keys[5], _WIDTH, _DIAGONAL, 0.0),
    )


def log_ridge(network: CorrectionNetwork, table: Tempered, s: int) -> Float[Array, " d"]:
    """The correction of the log ridge of every row."""
    d, one = len(table.diagonal), jnp.ones_like(table.diagonal)
    corr = _correlations(table)
    position = jnp.arange(d, dtype=one.dtype)
    log_kappa = jnp.log(table.lam) + table.q * (0.5 * jnp.log(table.n + 2) - jnp.log(table.diagonal))
    features = jnp.stack(
        [
            log_kappa / 3,
            table.q * one,
            table.pinned * one,
            jnp.log(table.excess) / 3,
            jnp.log1p(jnp.sum(corr**2, 1)),
            jnp.max(jnp.abs(corr), 1),
            jnp.log1p(position) / 3,
            jnp.log1p(d - 1 - position) / 3,
            jnp.log1p(jnp.maximum(s - 1 - position, 0)) / 3,
            jnp.log(table.n + 2) / 5 * one,
            jnp.log((table.n + 2) / (table.n + 2 + d)) / 2 * one,
            jnp.log1p(jnp.mean(jnp.sum(corr**2, 1))) * one,
        ],
        -1,
    )
    return 3 * jnp.tanh(network.row(features)[:, 0] / 3)


def entry_corrections(
    network: CorrectionNetwork, table: Tempered, factors: Factors
) -> tuple[Float[Array, "5 d s"], Float[Array, "3 d s"]]:
    """Corrections of all entries (log σ, δ, log κ, log scale and shift of the noise), and weights of `couplings`."""
    view = _entries(table, factors)
    h = network.first(_features(table, factors, view))

    def one_round(carry, _):
        return _round(network, table, factors, view, *carry), None

    zero = jnp.zeros_like(view.log_kappa)
    start = (h, _Estimates(zero, _columns_of(view, zero, view.ell), zero))
    (h, found), _ = jax.lax.scan(one_round, start, None, length=NUM_ROUNDS)
    return _outputs(network, table, factors, view, h, found)


# ------------------------------------------------------------------------------------------------ features and rounds
class _Entries(NamedTuple):
    """Fixed arrays of a table at one condition; (d, s) unless noted."""

    below: Array
    ell: Array  # (s,), typical
    sigma: Array  # (d, 1)
    log_kappa: Array
    shift: Array  # δ without fill-in and entries above
    corr: Array
    partial: Array
    near: Array  # (d, d), squared partial correlations


class _Estimates(NamedTuple):
    """What the rounds improve; (d, s) each."""

    x: Array  # x̄, in units of σ
    L: Array
    force: Array  # Γ, below the diagonal


class _Means(NamedTuple):
    """Two conditional means of every entry from its cusp, and both shrunken, in units of σ; (d, s) each."""

    cusp: Array  # in units of L
    above: Array  # given the entries above
    others: Array  # given all others of the column, and the forces on later ones
    shrunk: Array
    log_odds: Array
    shrunk_others: Array
    force: Array  # of the penalty on ω, at the shrunken mean given the others


def _correlations(table: Tempered) -> Float[Array, "d d"]:
    root = jax.lax.rsqrt(table.diagonal)
    return jnp.where(jnp.eye(len(root), dtype=bool), 0.0, table.scatter * root * root[:, None])


def _entries(table: Tempered, factors: Factors) -> _Entries:
    d, s = len(table.diagonal), len(factors.degrees)
    A, a, scale = factors.A, jnp.diagonal(factors.A), factors.scale
    below = jnp.arange(d)[:, None] > jnp.arange(s)
    ell = scale[:s] * jnp.sqrt(factors.degrees)
    inverse = A @ A.T
    root = jax.lax.rsqrt(jnp.diagonal(inverse))
    partial = jnp.where(jnp.eye(d, dtype=bool), 0.0, -inverse * root * root[:, None])
    return _Entries(
        below=below,
        ell=ell,
        sigma=scale[:, None],
        log_kappa=jnp.log(table.lam) + table.q * (jnp.log(ell) + jnp.log(scale)[:, None]),
        shift=jnp.where(below, (scale / a**2)[:, None] * A[:, :s] / a[:s] * ell, 0.0),
        corr=_correlations(table)[:, :s],
        partial=partial[:, :s],
        near=partial**2,
    )


def _features(table: Tempered, factors: Factors, view: _Entries) -> Float[Array, "d s f"]:
    """First features of every entry, all even."""
    d, s = view.log_kappa.shape
    one, position = jnp.ones_like(view.log_kappa), jnp.arange(d, dtype=view.log_kappa.dtype)
    inflation = jnp.log(factors.scale**2 * table.diagonal)
    shrunk, log_odds = shrink(view.shift, view.log_kappa, table.q * one)
    r2, p2 = jnp.log1p(jnp.sum(_correlations(table) ** 2, 1)), jnp.log1p(jnp.sum(view.near, 1))
    rows = (r2, p2, inflation / 2, jnp.log(factors.ridge / table.diagonal) / 3)
    columns = (r2[:s], p2[:s], inflation[:s] / 2, jnp.log(factors.degrees) / 5)
    size = jnp.log(table.n + 2)
    features = [
        view.log_kappa / 3,
        table.q * one,
        table.pinned * one,
        jnp.abs(view.corr),
        jnp.abs(view.partial),
        jnp.tanh(jnp.abs(view.shift) / 2),
        jnp.log1p(jnp.abs(view.shift)) / 2,
        jnp.tanh(jnp.abs(shrunk) / 2),
        log_odds / (5 + jnp.abs(log_odds)),
        jnp.tanh(view.corr * view.shift),
        jnp.tanh(view.partial * view.shift),
        *(row[:, None] * one for row in rows),
        *(column * one for column in columns),
        jnp.log1p(position)[:, None] / 3 * one,
        jnp.log1p(position[:s]) / 3 * one,
        jnp.log1p(d - 1 - position[:s]) / 3 * one,
        size / 5 * one,
        (size - jnp.log(table.n + 2 + d)) / 2 * one,
    ]
    return jnp.stack(features, -1)


def _columns_of(view: _Entries, below: Float[Array, "d s"], ell: Float[Array, " s"]) -> Float[Array, "d s"]:
    index = jnp.arange(len(ell))
    return jnp.where(view.below, below, 0.0).at[index, index].set(ell)


def _forces(force: Float[Array, "d s"]) -> Float[Array, "d d"]:
    """Γ, symmetric; zero where both variables are not of the query."""
    whole = jnp.pad(force, ((0, 0), (0, force.shape[0] - force.shape[1])))
    return whole + whole.T


def _conditional_means(table: Tempered, factors: Factors, view: _Entries, found: _Estimates) -> _Means:
    L, s, a = found.L, len(view.ell), jnp.diagonal(factors.A)[:, None]
    ell = jnp.diagonal(L[:s])
    fill = jnp.where(view.below, L @ L[:s].T - ell * L, 0.0)
    cusp = -view.sigma * _bounded(fill / ell / view.sigma)
    above = (view.sigma / a) ** 2 * (L - a * (factors.U.T @ L))
    root = jnp.sqrt(table.diagonal)[:, None]
    pulled = _forces(found.force) @ L - found.force * ell  # without the entry's own force
    others = L - (table.scatter @ L + table.lam * L - pulled) / root**2
    delta, delta_others = ((jnp.where(view.below, mean - cusp, 0.0)) for mean in (above, others))
    q = jnp.broadcast_to(table.q, view.log_kappa.shape)
    log_kappa = view.log_kappa + table.q * jnp.log(ell / view.ell)
    shrunk, log_odds = shrink(_bounded(delta / view.sigma), log_kappa, q)
    narrow = jnp.log(table.lam) + table.q * (jnp.log(ell) - jnp.log(root))
    mean = _bounded(delta_others * root)
    shrunk_others, _ = shrink(mean, narrow, q)
    unit, force = 1 / (root * view.sigma), (shrunk_others - mean) * root / ell
    return _Means(cusp, delta / view.sigma, mean * unit, shrunk, log_odds, shrunk_others * unit, force)


def _bounded(x: PerEntry) -> PerEntry:
    return jnp.clip(x, -_LARGEST, _LARGEST)


def _round(network: CorrectionNetwork, table: Tempered, factors: Factors, view: _Entries, h: Array, found: _Estimates):
    """Features and estimates after one more round."""
    x, means = found.x, _conditional_means(table, factors, view, found)
    message = jnp.where(view.below[..., None], h @ network.message.T, 0.0)
    sent, log_square = message[..., :-1], message[..., -1]
    received = _exchange(view, sent)
    # Second moments of entries, in units of σ²: of the fill-in of an entry, and of what it adds to that of others.
    square = jnp.where(view.below, jnp.exp(5 * jnp.tanh(log_square / 5)), 0.0)
    share = (factors.scale[: len(view.ell)] / view.ell) ** 2
    before = square @ square[: len(view.ell)].T * share
    later = share @ square[: len(view.ell)]
    features = [
        jnp.log1p(jnp.abs(means.above)) / 2,
        jnp.log1p(jnp.abs(means.others)) / 2,
        jnp.tanh(jnp.abs(x) / 2),
        jnp.log1p(jnp.abs(x)) / 2,
        means.log_odds / (5 + jnp.abs(means.log_odds)),
        jnp.tanh((means.above - means.others) * jnp.sign(x + means.shrunk)),
        jnp.tanh((x - means.shrunk) * jnp.sign(x + means.shrunk)),
        jnp.log1p(before),
        jnp.log1p(later) * jnp.ones_like(before),
    ]
    given = jnp.concatenate([h, jnp.stack(features, -1), received], -1)
    out = network.round(given)
    parts, size = jax.nn.softmax(out[..., :3] + jnp.array([0.0, 2.0, 0.0], h.dtype)), out[..., 3]
    x = jnp.sum(parts * jnp.stack([x, means.shrunk, means.shrunk_others], -1), -1) * jax.nn.sigmoid(2 + size)
    x = _bounded(jnp.where(view.below, x, 0.0))
    force = jnp.where(view.below, jnp.tanh(out[..., 4]) * means.force, 0.0)
    L, index = means.cusp + view.sigma * x, jnp.arange(len(view.ell))
    # ψℓ + b = k/ℓ, from the second equation above
    b = jnp.sum(jnp.where(view.below, (table.scatter[:, : len(view.ell)] - force) * L, 0.0), 0)
    psi, ell = table.diagonal[: len(view.ell)], jnp.diagonal(found.L[: len(view.ell)])
    root = jnp.sqrt(b * b + 4 * psi * factors.degrees)
    solution = jnp.where(b > 0, 2 * factors.degrees / (root + b), (root - b) / (2 * psi))
    log_ell = jnp.log(ell / view.ell) + jnp.tanh(out[index, index, 5]) * jnp.log(solution / ell)
    ell = view.ell * jnp.exp(jnp.clip(log_ell, -_FARTHEST, _FARTHEST))
    return h + out[..., 6:], _Estimates(x, _columns_of(view, L, ell), force)


def _exchange(view: _Entries, sent: Float[Array, "d s m"]) -> Float[Array, "d s 4m"]:
    """Sums of what other entries send: neighbours in the column and in the row, and means of column and row."""
    s = len(view.ell)
    in_column = jnp.einsum("ik,kjm->ijm", view.near, sent)
    in_row = jnp.einsum("jk,ikm->ijm", view.near[:s, :s], sent)
    below = view.below.astype(sent.dtype)
    column = jnp.sum(sent, 0) / jnp.maximum(jnp.sum(below, 0), 1)[:, None]
    row = jnp.sum(sent, 1) / jnp.maximum(jnp.sum(below, 1), 1)[:, None]
    means = (jnp.broadcast_to(each, sent.shape) for each in (column, row[:, None]))
    return jnp.concatenate([in_column, in_row, *means], -1)


def _outputs(
    network: CorrectionNetwork, table: Tempered, factors: Factors, view: _Entries, h: Array, found: _Estimates
):
    out, x, means = network.entry(h), found.x, _conditional_means(table, factors, view, found)
    even, shift, noise_shift, coupling = jnp.split(out, np.cumsum([_EVEN, _SHIFT, _NOISE_SHIFT]), axis=-1)
    # The shift with which the entry's law, given those above, has the slope of its law given all others at x̄. Where x̄
    # is the mode, as at low temperatures, all entries together then have theirs there.
    inflation = (factors.scale**2 * table.diagonal)[:, None]
    matched = x - means.above + inflation * (means.others - x)
    odd = [
        jnp.tanh(x / 2),
        jnp.tanh(view.shift / 2),
        view.corr,
        view.partial,
        _bounded(means.others - means.above),
        _bounded(x - means.shrunk),
    ]
    odd = jnp.stack(odd, -1)
    index, share = jnp.arange(len(view.ell)), jnp.tanh(shift[..., -1])
    delta = jnp.sum(shift[..., :-1] * odd, -1) + share * _bounded(matched)
    noise = jnp.sum(noise_shift * odd[..., :_NOISE_SHIFT], -1)
    entries = jnp.stack([even[..., 0], delta, even[..., 1], even[..., 2], noise])
    spread, move, share = network.diagonal(h[index, index]).T
    # `structured_entries.diagonal_entry`: ℓ^{2/3} is linear in the shift
    width = jnp.sqrt(2 / (9 * factors.degrees))
    move += jnp.tanh(share) * (jnp.exp(jnp.log(jnp.diagonal(found.L[: len(index)]) / view.ell) / 1.5) - 1) / width
    correction = jnp.where(view.below, entries, 0.0).at[:2, index, index].set(jnp.stack([spread, move]))
    return correction, jnp.where(view.below, jnp.moveaxis(coupling, -1, 0), 0.0)


def couplings(factors: Factors, weights: Float[Array, "3 d s"]) -> Couplings:
    """If the ridge of a later row pulled it to its cusp, δ_ij would move by −Σ_{k>i} (σ_i/a_i) A_ki ρ_k σ_k f_kj."""
    A, a, scale = factors.A, jnp.diagonal(factors.A), factors.scale
    matrix = -jnp.tril(A, -1) * (factors.ridge * scale)[:, None] * (scale / a)
    gate, out, diagonal = weights
    return Couplings(matrix, jax.nn.sigmoid(gate), out, diagonal * jax.lax.rsqrt(factors.degrees))
