"""Marginal likelihood of (λ, q), with the prior's normalizer on the positive definite cone, and what it chooses.

    log p(X | λ, q) = −(nd/2) log 2π + log Z_post(λ, q) − log Z_prior(λ, q)
    Z_prior(λ, q) = λ^{−D} ∫_{Ω≻0} exp(−½ tr Ω − λ^{1−q} Σ|ω_ij|^q) dΩ

Both Z are normalizers of the target on the free entries, D of them: Z_prior is that of no data, n = 0 and S = 0. A flow
of the same kind is fitted to it; for many variables, where it would not be good enough, see `prior_integral`.
For a query block of s variables Ω₂₂.₁ (t×t) is integrated out in closed form:

    ∫ det(W)^{n/2} exp(−½ tr WΨ) dW = 2^{tν/2} Γ_t(ν/2) det(Ψ)^{−ν/2},     ν = n + t + 1,  Ψ = S₂₂ + λI

At q = 1 the integral does not depend on λ at all, so one estimate serves every λ.
"""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxlib import version as jaxlib
from jaxtyping import Array, Float, Key
from scipy.special import gammaln, logsumexp

from ggmflow import __version__
from ggmflow.data.scatter import Scatter
from ggmflow.evidence.bridge import bridge_to_proposal
from ggmflow.evidence.prior_integral import NUM_PARTS, VERSION, PriorIntegral, integrate_prior, nodes
from ggmflow.flow.base import MatrixFlow, untrained_flow
from ggmflow.flow.serialize import arrays_of_flow, fill_flow
from ggmflow.model.conditions import Q_LIMITS, Choice, Ranges
from ggmflow.posterior.edges import Penalty
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.posterior.source import Draws
from ggmflow.posterior.weights import importance_weights
from ggmflow.storage import archive
from ggmflow.storage.cache import compilation_cache_enabled, safe_directory
from ggmflow.train.clock import Clock
from ggmflow.train.devices import default_device
from ggmflow.train.loop import train
from ggmflow.train.progress import counting_bar, training_bar
from ggmflow.train.settings import default_settings

Method = Literal["importance", "bridge", "integral", "cumulant"]

_PRIOR_STEPS = 300
_MANY = 40  # query variables above which the prior is integrated: at 107 a flow is wrong by thousands of nats
_PRIOR_SEED = 0
_CLOSE = 20.0  # nats that a finer search may add
_CHAINS, _SWEEPS, _KEPT = 256, 100, 10  # of a bridge


class LogNormalizer(NamedTuple):
    """log ∫ p̃ over the free entries of Ω.

    Attributes
    ----------
    value, se
        Estimate and its standard error.
    elbo, ess, khat
        Of the flow's draws, as in `Posterior.diagnostics`.
    method
        "importance" where k̂ allows it. Otherwise "bridge", between the flow and exact chains, or "cumulant", the mean
        of the log weights plus half their variance: right for normal log weights, with a standard error that does not
        know whether they are. "integral" for the prior of many variables, see `prior_integral`; there is no flow then.
    num_invalid
        Draws of the flow whose p̃/q is not a number or infinite. They count as draws of weight zero, and no chain starts
        from them.
    """

    value: float
    se: float
    elbo: float
    ess: float
    khat: float
    method: Method
    num_invalid: int = 0


def log_normalizer(source: FlowSource, key: Key[Array, ""], num_draws: int, *, exact: bool = True) -> LogNormalizer:
    """log ∫ p̃ of the target of a flow.

    Parameters
    ----------
    source
        The flow at a condition.
    key
        The same key gives the same noise, so that differences between conditions are smooth.
    num_draws
        Draws of the flow.
    exact
        Whether to run exact chains where importance weights fail; otherwise the cumulants have to do.
    """
    entries, log_q, log_p = source.entries(key, num_draws)
    log_ratio = log_p.astype(float) - log_q
    weights = importance_weights(log_ratio)
    known = {"elbo": weights.elbo, "ess": weights.ess, "khat": weights.khat, "num_invalid": weights.num_invalid}
    if not weights.poor:
        return LogNormalizer(weights.log_normalizer, weights.log_normalizer_se, method="importance", **known)
    usable = np.isfinite(log_ratio)
    log_ratio = np.where(usable, log_ratio, -np.inf)  # as in the weights
    if not exact:
        return LogNormalizer(*_by_cumulants(log_ratio), method="cumulant", **known)
    start = source.to_rows(entries[np.flatnonzero(usable)[:_CHAINS]])
    chains = source.refine(jax.random.fold_in(key, 1), start, _SWEEPS, _KEPT)
    rows = chains.draws[:, _KEPT // 2 :]
    density = source.log_prob(rows.reshape(-1, *rows.shape[2:])).reshape(rows.shape[:2])
    estimate = bridge_to_proposal(source.log_target(rows) - density, log_ratio)
    return LogNormalizer(*estimate, method="bridge", **known)


def _by_cumulants(log_ratio: Float[np.ndarray, " N"]) -> tuple[float, float]:
    """Mean of log weights plus half their variance, and its standard error.

    Draws that fell far out of the posterior count for next to nothing in the integral, but would rule the variance: the
    lower tail is cut where a normal distribution with the median and the upper half of these weights has none left.
    """
    middle, above = np.quantile(log_ratio, [0.5, 0.8413])
    kept = np.maximum(log_ratio, middle - 3 * (above - middle))
    deviation = kept - kept.mean()
    value, error = kept.mean() + 0.5 * np.mean(deviation**2), np.std(deviation + 0.5 * deviation**2)
    return float(value), float(error / np.sqrt(log_ratio.size))


# ---------------------------------------------------------------------------------------------------------------- prior
class Prior(NamedTuple):
    """A flow fitted to no data, for a range of (λ, q) at T = 1."""

    flow: MatrixFlow
    ranges: Ranges

    def log_normalizer(self, lam: float, q: float, num_draws: int, *, exact: bool = True) -> LogNormalizer:
        """log Z_prior on the free entries; at q = 1 from λ in the middle of the range, by the scaling law."""
        middle = float(np.exp(self.ranges.low[0] / 2 + self.ranges.high[0] / 2))
        at = middle if q == 1 else lam
        d = len(self.flow.scatter_matrix)
        source = FlowSource(self.flow, self.ranges.condition(at, q, 1.0), np.arange(d), Scatter.without_data(d))
        found = log_normalizer(source, jax.random.key(_PRIOR_SEED), num_draws, exact=exact)
        shift = self.flow.n_entries * np.log(lam / at)
        return found._replace(value=found.value - shift, elbo=found.elbo - shift)


class LargePrior(NamedTuple):
    """The prior of many variables, with the interface of `Prior`."""

    integral: PriorIntegral

    def log_normalizer(self, lam: float, q: float, num_draws: int, *, exact: bool = True) -> LogNormalizer:
        """log Z_prior on the free entries; draws and chains were made before."""
        self.integral.ranges.condition(lam, q, 1.0)  # refuses what is outside
        return LogNormalizer(*self.integral.log_normalizer(lam, q), np.nan, np.nan, np.nan, "integral")


def prior_ranges(ranges: Ranges) -> Ranges:
    """The ranges of λ and q, widened to round numbers: one prior then serves many data sets."""
    low, high = (round_to(2 * np.log10(end)) / 2 for round_to, end in zip((_floor, _ceil), ranges.lam, strict=True))
    q_low, q_high = (round_to(4 * end) / 4 for round_to, end in zip((_floor, _ceil), ranges.q, strict=True))
    return Ranges((float(10**low), float(10**high)), (max(q_low, Q_LIMITS[0]), min(q_high, Q_LIMITS[1])), (1.0, 1.0))


def _floor(value: float) -> float:
    return float(np.floor(value + 1e-9))


def _ceil(value: float) -> float:
    return float(np.ceil(value - 1e-9))


_known: dict[tuple[int, int, Ranges], Prior | LargePrior] = {}


def fit_prior(n_features: int, n_query: int, ranges: Ranges, progress: bool = False) -> Prior | LargePrior:
    """The prior's flow or integral: from this process, from the user's cache directory, or made now.

    Parameters
    ----------
    n_features, n_query
        d and s.
    ranges
        Of λ and q.
    progress
        Whether to show a live line while it trains.
    """
    shape = (n_features, n_query, ranges)
    if shape not in _known:
        _known[shape] = (_read_or_train if n_query <= _MANY else _read_or_integrate)(*shape, progress)
    return _known[shape]


def _read_or_integrate(n_features: int, n_query: int, ranges: Ranges, progress: bool) -> LargePrior:
    path = _prior_path(n_features, n_query, ranges, f"integral{VERSION}")
    if path is not None and path.exists():
        try:
            h = archive.read(path)[1]["h"]
            if h.ndim == 3 and h.shape[1:] == nodes(n_features, ranges)[1].shape and np.isfinite(h).all():
                return LargePrior(PriorIntegral(n_features, n_query, ranges, h))
        except (archive.ModelFileError, KeyError, ValueError, OSError):
            pass  # of another version, or damaged: again
    with compilation_cache_enabled(), counting_bar(progress, "prior", NUM_PARTS) as report:
        found = integrate_prior(n_features, n_query, ranges, report)
    _keep(path, {"h": found.h})
    return LargePrior(found)


def _keep(path: Path | None, arrays: dict[str, np.ndarray]) -> None:
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            archive.write(path, {"kind": "prior"}, arrays)
        except OSError:  # a full or read-only disk costs time, nothing else
            pass


def _read_or_train(n_features: int, n_query: int, ranges: Ranges, progress: bool) -> Prior:
    query, scatter = np.arange(n_query), Scatter.without_data(n_features)
    path = _prior_path(n_features, n_query, ranges, str(_PRIOR_STEPS))

    def start(key: Key[Array, ""]) -> MatrixFlow:
        return untrained_flow(key, "structured", scatter, query, ranges)

    if path is not None and path.exists():
        try:
            _, arrays = archive.read(path)
            if all(np.isfinite(array).all() for array in arrays.values()):
                return Prior(fill_flow(start, arrays, "flow/"), ranges)
        except (archive.ModelFileError, KeyError, ValueError, OSError):
            pass  # of another version, or damaged: train again
    key_start, key_train = jax.random.split(jax.random.key(_PRIOR_SEED))
    clock = Clock()
    with compilation_cache_enabled(), jax.enable_x64(False), training_bar(progress, clock, name="prior") as report:
        flow = start(key_start)
        settings = default_settings(flow.n_entries, False, steps=_PRIOR_STEPS)
        # It is small, and other processes need not ask for it at the same time.
        options = {"report": report, "devices": default_device(), "clock": clock}
        trained = train(flow, key_train, ranges.low, ranges.high, settings, **options)
    if trained.status == "interrupted":
        raise KeyboardInterrupt  # half a prior is of no use
    if trained.status == "failed":
        raise FloatingPointError("training of the prior's flow failed: narrow the ranges of lam and q")
    _keep(path, arrays_of_flow(trained.flow, "flow/"))
    return Prior(trained.flow, ranges)


def _prior_path(n_features: int, n_query: int, ranges: Ranges, kind: str) -> Path | None:
    """Where a prior is kept; None where nothing is, or where others could have put one of theirs."""
    directory = safe_directory()
    if directory is None:
        return None
    box = "-".join(f"{end:.3g}" for end in (*ranges.lam, *ranges.q))
    # Another version makes its own: what evidence says must not depend on which of them was here first.
    made_by = f"ggmflow{__version__}-jax{jax.__version__}-jaxlib{jaxlib.__version__}"
    return directory / "priors" / f"d{n_features}-s{n_query}-{box}-{kind}-{made_by}.ggmflow"


# ------------------------------------------------------------------------------------------------------------- evidence
class Evidence(NamedTuple):
    """log p(X | λ, q) and the two normalizers behind it."""

    value: float
    se: float
    posterior: LogNormalizer
    prior: LogNormalizer

    @property
    def method(self) -> str:
        """How the normalizers were found; the less reliable of the two ways."""
        return max(self.posterior.method, self.prior.method, key=("importance", "bridge", "integral", "cumulant").index)


def log_evidence(
    source: FlowSource, prior: Prior | LargePrior, key: Key[Array, ""], num_draws: int, *, exact: bool = True
) -> Evidence:
    """log p(X | λ, q) of the data in the working scale, n the number of rows.

    Parameters
    ----------
    source
        The posterior's flow at (λ, q), T = 1.
    prior
        As `fit_prior` gives it.
    key, num_draws
        For the draws.
    exact
        As in `log_normalizer`.
    """
    after = log_normalizer(source, key, num_draws, exact=exact)
    before = prior.log_normalizer(source.lam, source.q, num_draws, exact=exact)
    scatter, s = source.scatter, source.flow.n_query
    rest = source.order[s:]
    value = after.value - before.value + _log_rest(scatter.matrix[np.ix_(rest, rest)], scatter.n, source.lam)
    value -= 0.5 * scatter.n * scatter.n_features * np.log(2 * np.pi)
    return Evidence(float(value), float(np.hypot(after.se, before.se)), after, before)


def evidence_table(
    source_at: Callable[[float, float], FlowSource],
    prior: Prior | LargePrior | None,
    lams: Sequence[float],
    qs: Sequence[float],
    *,
    key: Key[Array, ""],
    num_draws: int,
    exact: bool,
) -> pd.DataFrame:
    """Evidence of every pair of λ and q; the published quantity where there is no prior.

    Parameters
    ----------
    source_at
        The posterior's flow at (λ, q), T = 1.
    prior
        As `fit_prior` gives it, or None.
    lams, qs
        Values to combine.
    key, num_draws, exact
        As in `log_evidence`.
    """
    rows = []
    for lam, q in product(lams, qs):
        source = source_at(lam, q)
        if prior is None:
            after = log_normalizer(source, key, num_draws, exact=False)
            pairs = source.flow.n_entries - source.flow.n_query
            value, se, method = after.elbo + published_constants(lam, q, pairs), np.nan, "published"
        else:
            value, se, after, _ = found = log_evidence(source, prior, key, num_draws, exact=exact)
            method = found.method
        rows.append((lam, q, value, se, after.elbo, after.ess, after.khat, method))
    return pd.DataFrame(rows, columns=["lam", "q", "log_evidence", "se", "elbo", "ess", "khat", "method"])


def _log_rest(S_22: Float[np.ndarray, "t t"], n: float, lam: float) -> float:
    """log of the factor that integrating Ω₂₂.₁ out leaves, after the data over before."""
    t = len(S_22)
    if t == 0:
        return 0.0

    def log_wishart(nu: float, log_det: float) -> float:
        log_gamma = t * (t - 1) / 4 * np.log(np.pi) + float(np.sum(gammaln((nu - np.arange(t)) / 2)))
        return t * nu / 2 * np.log(2) + log_gamma - nu / 2 * log_det

    return log_wishart(n + t + 1, np.linalg.slogdet(S_22 + lam * np.eye(t))[1]) - log_wishart(t + 1, t * np.log(lam))


def published_constants(lam: float, q: float, num_pairs: int) -> float:
    """Σ_{i<j} log(q λ^{1/q}/(2Γ(1/q))): normalizers of the off-diagonal factors as if they were independent."""
    return float(num_pairs * (np.log(q / 2) + np.log(lam) / q - gammaln(1 / q)))


# -------------------------------------------------------------------------------------------------------------- choice
def choose(surface: Callable[[float, float], Evidence], ranges: Ranges, *, num_lam: int = 9, num_q: int = 5) -> Choice:
    """Maximize over λ and q: the best λ for each q of a grid, then the best q.

    The best λ moves with q, and between two points of a grid the evidence may rise by several nats. So λ is searched
    twice for each q that can still win, the second time close to the first top, and the tops are compared.

    Parameters
    ----------
    surface
        Evidence of (λ, q); smooth, because its noise is the same everywhere.
    ranges
        Where to look.
    num_lam, num_q
        Size of the grid; one point for a range that is a point.
    """
    x, qs = grid(ranges, num_lam, num_q)

    def line(at: Float[np.ndarray, " k"], q: float) -> Float[np.ndarray, " k"]:
        values = np.array([surface(float(np.exp(each)), q).value for each in at])
        return np.where(np.isfinite(values), values, -np.inf)

    lines = [line(x, float(q)) for q in qs]
    tops = [_top(x, values) for values in lines]
    highest = max(height for _, height in tops)
    if highest == -np.inf:
        raise FloatingPointError("the evidence is not finite anywhere in the ranges of lam and q")
    step = (x[-1] - x[0]) / max(len(x) - 1, 1)
    for k, (place, height) in enumerate(tops):
        if x[0] < place < x[-1] and height > highest - _CLOSE:
            near = place + np.array([-0.25, 0.0, 0.25]) * step
            tops[k] = _top(near, line(near, float(qs[k])), outside=True)
    places, heights = np.array(tops).T
    q, _ = _top(qs, heights)
    place = float(np.interp(q, qs, places))
    best = int(np.argmax(heights))
    ends = [
        f"the {'lower' if at == axis[0] else 'upper'} end of {name}"
        for name, axis, at in (("lam", x, places[best]), ("q", qs, qs[best]))
        if len(axis) > 1 and at in (axis[0], axis[-1])
    ]
    return Choice(float(np.clip(np.exp(place), *ranges.lam)), float(np.clip(q, *ranges.q)), tuple(ends))


def grid(ranges: Ranges, num_lam: int, num_q: int) -> tuple[Float[np.ndarray, " num_lam"], Float[np.ndarray, " num_q"]]:
    """Points of log λ and of q that `choose` looks at first; one point for a range that is a point."""
    return _axis(ranges.low[0], ranges.high[0], num_lam), _axis(*ranges.q, num_q)


def _axis(low: float, high: float, num: int) -> Float[np.ndarray, " k"]:
    return np.linspace(low, high, num) if high > low else np.array([low])


def _top(x: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"], *, outside: bool = False) -> tuple[float, float]:
    """Place and height of the parabola through the highest point and its neighbours; an end if that is highest.

    With `outside` the points are near the top, but it may lie a little beyond the last of them.
    """
    k = int(np.argmax(y))
    if outside:
        k = min(max(k, 1), len(x) - 2)
    if k in (0, len(x) - 1) or not np.isfinite(y[k - 1 : k + 2]).all():
        return float(x[k]), float(y[k])
    a, b, c = np.polyfit(x[k - 1 : k + 2] - x[k], y[k - 1 : k + 2], 2)
    if a >= 0:
        return float(x[k]), float(y[k])
    shift = float(np.clip(-b / (2 * a), x[k - 1] - x[k], x[k + 1] - x[k]))
    return float(x[k] + shift), float(c + b * shift + a * shift**2)


def midpoints(low: float, high: float, num: int) -> Float[np.ndarray, " k"]:
    """Middles of `num` equal parts of a range; one point for a range that is a point."""
    return low + (np.arange(num) + 0.5) / num * (high - low) if high > low else np.array([low])


def mix(sources: Sequence[FlowSource], found: Sequence[Evidence]) -> "MixtureSource":
    """Posteriors at many points, mixed by their evidence; points of no weight are left out."""
    log_share = np.array([each.value for each in found])
    log_share = log_share - logsumexp(log_share)
    kept = np.flatnonzero(log_share > np.log(1e-4)).tolist()
    constant = np.array([each.value - each.posterior.value for each in found])
    shares = log_share[kept] - logsumexp(log_share[kept])
    return MixtureSource([sources[k] for k in kept], shares, constant[kept])


class MixtureSource(NamedTuple):
    """Posteriors at many (λ, q), mixed by their evidence: log λ and q uniform in the fitted ranges a priori.

    Attributes
    ----------
    sources
        A flow at each point of a grid.
    log_share
        log of each point's posterior probability.
    log_constant
        What makes the targets of different points comparable: everything in the evidence but Z_post.
    """

    sources: Sequence[FlowSource]
    log_share: Float[np.ndarray, " k"]
    log_constant: Float[np.ndarray, " k"]

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """l_q factor of every point, with the point's probability."""
        shares = np.exp(self.log_share - logsumexp(self.log_share)).tolist()
        return tuple(Penalty(source.lam, source.q, share) for source, share in zip(self.sources, shares, strict=True))

    def sample(self, key: Key[Array, ""], num_draws: int) -> Draws:
        """Draws of (point, Ω), of which Ω is given; both densities are those of the pair."""
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        counts = rng.multinomial(num_draws, np.exp(self.log_share - logsumexp(self.log_share)))
        rows, log_q, log_p = [], [], []
        for k in np.flatnonzero(counts).tolist():
            draws = self.sources[k].sample(jax.random.fold_in(key, k), int(counts[k]))
            rows.append(draws.precision)
            log_q.append(self.log_share[k] + np.asarray(draws.log_prob))
            log_p.append(self.log_constant[k] + np.asarray(draws.log_target))
        order = rng.permutation(num_draws)
        return Draws(*(np.concatenate(parts)[order] for parts in (rows, log_q, log_p)))

    def log_prob(self, precision: Float[np.ndarray, "k s d"]) -> Float[np.ndarray, " k"]:
        """Density of Ω alone, the mixture's."""
        parts = [share + source.log_prob(precision) for share, source in zip(self.log_share, self.sources, strict=True)]
        return logsumexp(parts, axis=0)
