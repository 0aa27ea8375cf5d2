"""The blanket sampler of Kaufmann et al. (2015): whole blocks of (Ω₁₁, Ω₁₂) at q = 1, with Ω₂₂.₁ integrated out.

The target, A = S + λI, is that of `ggmflow.model.target` at q = 1:

    det(Ω₁₁)^{n/2} exp(−½ tr[Ω₁₁A₁₁ + 2Ω₁₂ᵀS₁₂ + Ω₁₁⁻¹Ω₁₂A₂₂Ω₁₂ᵀ] − λ Σ_{i<j≤s} |ω_ij| − λ Σ_{i≤s<k} |ω_ik|)

Each Laplace factor is a mixture of normals, exp(−λ|ω|) ∝ ∫ N(ω; 0, τ) exp(−½λ²τ) dτ. Given all τ everything is Gaussian
but the Schur complements. With Σ = Ω₁₁⁻¹, Q = Ω₁₂A₂₂Ω₁₂ᵀ, and for column j of Ω₁₁ the inverse M of Ω₁₁ without row and
column j (zeros there), γ = ω_jj − βᵀMβ, so that det Ω₁₁ ∝ γ and Σ = M + uuᵀ/γ with u = e_j − Mβ:

    1/τ   | rest ~ inverse Gaussian, mean λ/|ω|, shape λ²                                  one for each penalized entry
    ω_j,2 | rest ~ N, precision σ_jj A₂₂ + diag(1/τ_j),          linear term −s_j,2 − Σ_{i≠j} σ_ji (Ω₁₂A₂₂)_i
    β     | rest ~ N, precision a_jj M + MQM/γ + diag(1/τ_j),    linear term −s_j + MQe_j/γ
    γ     | rest ~ generalized inverse Gaussian, γ^{n/2} exp(−½ a_jj γ − ½ uᵀQu/γ)

A row of Ω₁₂ is drawn at once, which costs one t×t factorization; `ggmflow.gibbs` draws it entry by entry, for any q.
The two share no code of the draws, so that each can check the other.
"""

from collections.abc import Iterable
from numbers import Real

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key
from scipy import linalg

from ggmflow.data.scatter import Scatter
from ggmflow.errors.advice import Advice
from ggmflow.errors.argument import ArgumentError
from ggmflow.gibbs import Chains
from ggmflow.gibbs.chains import check_scatter, check_whole_number
from ggmflow.modes.penalized_likelihood import BLAS

_BLOCK = 50  # draws per compiled call: Ctrl-C takes effect between calls, and one program serves any number of draws
_TINY = 1e-100  # stands for |ω| = 0, which has probability zero


def blanket_gibbs(
    scatter: Scatter,
    query: str | int | Iterable[str | int],
    lam: float,
    *,
    num_chains: int = 4,
    num_draws: int = 1000,
    burn_in: int = 500,
    thin: int = 1,
    random_state: int = 0,
) -> Chains:
    """Draw from the posterior of a query's rows of the precision matrix under the l_1 prior.

    Parameters
    ----------
    scatter
        The data.
    query
        Columns whose Markov blanket is wanted, s of them, by name or position; at least one column must remain.
    lam
        λ > 0.
    num_chains
        Number of independent chains.
    num_draws, burn_in, thin
        Draws kept of each chain; sweeps discarded before; sweeps per draw.
    random_state
        Seed.

    Returns
    -------
    Chains
        Draws (chains, draws, s, d) in the working scale. Rows and the first s columns are in the order of the
        query; the other columns follow in the order of the data.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> chains = blanket_gibbs(Scatter.from_data(X), ["x2", "x0"], 2.0, num_draws=100)
    >>> chains.draws.shape
    (4, 100, 2, 4)
    """
    check_scatter(scatter)
    index = scatter.index(query)
    s, d = len(index), scatter.n_features
    if s == d:
        advice = Advice("use bayesian_graphical_lasso")
        raise ArgumentError("query", index.tolist(), reason="holds all columns", advice=advice)
    if isinstance(lam, bool) or not isinstance(lam, Real) or not 0 < float(lam) < np.inf:
        raise ArgumentError("lam", lam, "be a positive number")
    counts = {"num_chains": num_chains, "num_draws": num_draws, "thin": thin, "burn_in": burn_in}
    for name, value in counts.items():
        check_whole_number(name, value, 0 if name == "burn_in" else 1)
    order = [*index.tolist(), *np.setdiff1d(np.arange(d), index).tolist()]
    S, n, lam, block = scatter.matrix[np.ix_(order, order)], float(scatter.n), float(lam), min(_BLOCK, num_draws)
    draws = np.empty((num_chains, num_draws, s, d))
    with jax.enable_x64(True), BLAS.limit(limits=1, user_api="blas"):
        for c in range(num_chains):
            rows = jnp.asarray(_start(np.random.default_rng([random_state, c]), S + lam * np.eye(d), n, s))
            key = jax.random.fold_in(jax.random.key(random_state), c)
            for first in range(0, num_draws, block):
                sweeps = np.full(block, thin)
                sweeps[0] += burn_in if first == 0 else 0
                rows, kept = _advance(jax.random.fold_in(key, first), rows, S, n, lam, sweeps)
                draws[c, first : first + block] = np.asarray(kept)[: num_draws - first]
            if not np.isfinite(draws[c]).all():
                advice = Advice("use a larger one")
                raise ArgumentError("lam", lam, reason="made a chain exceed double precision", advice=advice)
    condition = (np.full(num_chains, value) for value in (lam, 1.0, 1.0))
    return Chains(draws, *condition)


def _start(rng, A, n, s):
    """Rows of a draw of Wishart(n + d + 1, A⁻¹), the posterior without l_1 factors, by its Bartlett factor."""
    d = len(A)
    bartlett = np.tril(rng.standard_normal((d, s)), -1)
    bartlett[np.arange(s), np.arange(s)] = np.sqrt(rng.chisquare(n + d + 1 - np.arange(s)))
    # A = UUᵀ with U upper triangular, so that L = U⁻ᵀB is lower triangular and LLᵀ ~ Wishart(·, A⁻¹).
    U = np.linalg.cholesky(A[::-1, ::-1])[::-1, ::-1]
    L = linalg.solve_triangular(U, bartlett, trans=1)
    return L[:s] @ L.T


@jax.jit
def _advance(key, rows, S, n, lam, sweeps):
    """Advance a chain and keep a state after each of the given numbers of sweeps."""

    def keep(rows, step):
        key, count = step
        rows = jax.lax.fori_loop(0, count, lambda i, rows: sweep(jax.random.fold_in(key, i), rows, S, n, lam), rows)
        return rows, rows

    return jax.lax.scan(keep, rows, (jax.random.split(key, len(sweeps)), sweeps))


def sweep(
    key: Key[Array, ""], rows: Float[Array, "s d"], S: Float[Array, "d d"], n: Float[Array, ""], lam: Float[Array, ""]
) -> Float[Array, "s d"]:
    """Draw every block once: all mixing variables, then row j of Ω₁₂ and column j of Ω₁₁ for every j.

    Parameters
    ----------
    key
        JAX random key.
    rows
        [Ω₁₁ Ω₁₂], in double precision.
    S
        Scatter matrix, query variables first.
    n, lam
        n and λ.
    """
    s, d = rows.shape
    A_22 = S[s:, s:] + lam * jnp.eye(d - s)
    key, key_mix, key_mix_query = jax.random.split(key, 3)
    weight = draw_inverse_mixing(key_mix, rows[:, s:], lam)  # 1/τ
    upper = jnp.triu(draw_inverse_mixing(key_mix_query, rows[:, :s], lam), 1)
    weight_query = upper + upper.T  # one τ for ω_ij and ω_ji; none for the diagonal

    def update(j, rows):
        key_row, key_column, key_schur = jax.random.split(jax.random.fold_in(key, j), 3)
        Omega_12, own = rows[:, s:], jnp.arange(s) == j
        Sigma = jnp.linalg.inv(rows[:, :s])
        others = jnp.where(own, 0.0, Sigma[j]) @ Omega_12 @ A_22
        Omega_12 = Omega_12.at[j].set(
            draw_normal(key_row, Sigma[j, j] * A_22 + jnp.diag(weight[j]), -S[j, s:] - others)
        )
        Q = Omega_12 @ A_22 @ Omega_12.T
        gamma, a_jj = 1 / Sigma[j, j], S[j, j] + lam
        M = Sigma - jnp.outer(Sigma[j], Sigma[j]) * gamma
        M = jnp.where(own | own[:, None], 0.0, M)  # exactly zero in spite of rounding
        # Position j is not part of β: it gets precision 1 and no linear term, and its draw is dropped.
        precision = a_jj * M + M @ Q @ M / gamma + jnp.diag(jnp.where(own, 1.0, weight_query[j]))
        linear = jnp.where(own, 0.0, -S[:s, j] + M @ Q[:, j] / gamma)
        beta = jnp.where(own, 0.0, draw_normal(key_column, precision, linear))
        u = jnp.where(own, 1.0, -M @ beta)
        gamma = draw_schur_complement(key_schur, n, a_jj, u @ Q @ u)
        column = jnp.where(own, gamma + beta @ M @ beta, beta)
        return jnp.concatenate([rows[:, :s].at[j].set(column).at[:, j].set(column), Omega_12], axis=1)

    return jax.lax.fori_loop(0, s, update, rows)


def draw_inverse_mixing(key: Key[Array, ""], omega: Float[Array, "*k"], lam: Float[Array, ""]) -> Float[Array, "*k"]:
    """1/τ | ω: inverse Gaussian with mean μ = λ/|ω| and shape λ², as the root of a χ² variable.

    Parameters
    ----------
    key
        JAX random key.
    omega
        Entries.
    lam
        λ.
    """
    key_normal, key_uniform = jax.random.split(key)
    mean = lam / jnp.maximum(jnp.abs(omega), _TINY)
    w = mean * jax.random.normal(key_normal, omega.shape, omega.dtype) ** 2 / (2 * lam**2)
    ratio = 1 + w + jnp.sqrt(w * (w + 2))  # the roots are mean/ratio and mean·ratio: nothing cancels for large w
    smaller = jax.random.uniform(key_uniform, omega.shape, omega.dtype) * (1 + ratio) < ratio
    return jnp.where(smaller, mean / ratio, mean * ratio)


def draw_normal(key: Key[Array, ""], precision: Float[Array, "k k"], linear: Float[Array, " k"]) -> Float[Array, " k"]:
    """Draw from N(P⁻¹b, P⁻¹), P = `precision`, b = `linear`."""
    root = jnp.linalg.cholesky(precision)
    half = solve_triangular(root, linear, lower=True)
    return solve_triangular(root, half + jax.random.normal(key, linear.shape, linear.dtype), lower=True, trans=1)


def draw_schur_complement(
    key: Key[Array, ""], n: Float[Array, ""], a: Float[Array, ""], b: Float[Array, ""]
) -> Float[Array, ""]:
    """Draw from γ^{n/2} exp(−½aγ − ½b/γ), a > 0, b ≥ 0, by rejection: exact.

    The log density f of x = log γ is concave. It lies below its value at the mode and below its tangents one unit of
    curvature to the left and right of it: proposals come from a flat top and two exponential tails.

    Parameters
    ----------
    key
        JAX random key.
    n, a, b
        Parameters of the density.
    """
    p = n / 2 + 1  # dγ = γ dx
    mode = jnp.log(p + jnp.sqrt(p**2 + a * b)) - jnp.log(a)

    def f(x):
        return p * x - 0.5 * (a * jnp.exp(x) + b * jnp.exp(-x))

    def slope(x):
        return p - 0.5 * (a * jnp.exp(x) - b * jnp.exp(-x))

    top, width = f(mode), jax.lax.rsqrt(0.5 * (a * jnp.exp(mode) + b * jnp.exp(-mode)))
    at = mode + width * jnp.array([-1.0, 1.0])
    steep = jnp.abs(slope(at))
    end = at + (top - f(at)) / slope(at)  # where the tangents reach the top
    area = jnp.array([1 / steep[0], end[1] - end[0], 1 / steep[1]])

    def attempt(state):
        key, _, _ = state
        key, key_part, key_place, key_accept = jax.random.split(key, 4)
        part = jax.random.categorical(key_part, jnp.log(area))
        place = jax.random.uniform(key_place, dtype=a.dtype)
        tail = -jnp.log1p(-place)
        x = jnp.array([end[0] - tail / steep[0], end[0] + place * (end[1] - end[0]), end[1] + tail / steep[1]])[part]
        bound = top - jnp.array([tail, 0.0, tail])[part]
        return key, x, jnp.log(jax.random.uniform(key_accept, dtype=a.dtype)) < f(x) - bound

    return jnp.exp(jax.lax.while_loop(lambda state: ~state[2], attempt, (key, mode, jnp.array(False)))[1])
