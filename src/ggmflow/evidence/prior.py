"""The prior's normalizer on the positive definite cone, for all (λ, q) of a range.

    Z_prior(λ, q) = λ^{−D} ∫_{Ω≻0} exp(−½ tr Ω − λ^{1−q} Σ|ω_ij|^q) dΩ

on the D free entries is the normalizer of the target without data, n = 0 and S = 0. It comes from a flow: the shipped
network's as it is where that is good enough, else one trained from there. For many variables, where a flow would not be
good enough, see `prior_integral`. At q = 1 the integral does not depend on λ, so one estimate serves every λ.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxlib import version as jaxlib
from jaxtyping import Array, Key

from ggmflow import __version__
from ggmflow.data.scatter import Scatter
from ggmflow.evidence.normalizer import LogNormalizer, Method, log_normalizer
from ggmflow.evidence.prior_integral import NUM_PARTS, VERSION, PriorIntegral, integrate_prior, nodes
from ggmflow.flow.base import MatrixFlow, untrained_flow
from ggmflow.flow.serialize import arrays_of_flow, fill_flow
from ggmflow.model.conditions import Q_LIMITS, Ranges
from ggmflow.posterior.flow_source import FlowSource
from ggmflow.posterior.start import Problem, fit_flow
from ggmflow.storage import archive
from ggmflow.storage.cache import compilation_cache_enabled, safe_directory
from ggmflow.train.clock import Clock
from ggmflow.train.devices import default_device
from ggmflow.train.progress import counting_bar, training_bar
from ggmflow.train.settings import default_settings
from ggmflow.train.status import Status

_STEPS = 300
_WEIGHTS = 4  # counts changes of the shipped weights, on which priors in the cache depend
_MANY = 40  # query variables above which the prior is integrated: at 107 a flow is wrong by thousands of nats
_SEED = 0

_known: dict[tuple[int, int, Ranges], "Prior | LargePrior"] = {}  # of this process


class Prior(NamedTuple):
    """A flow fitted to the prior, for a range of (λ, q) at T = 1."""

    flow: MatrixFlow
    ranges: Ranges

    def log_normalizer(self, lam: float, q: float, num_draws: int, *, exact: bool = True) -> LogNormalizer:
        """log Z_prior on the free entries; at q = 1 from λ in the middle of the range, by the scaling law."""
        middle = float(np.exp(self.ranges.low[0] / 2 + self.ranges.high[0] / 2))
        at = middle if q == 1 else lam
        d = len(self.flow.scatter_matrix)
        source = FlowSource(self.flow, self.ranges.condition(at, q, 1.0), np.arange(d), Scatter.without_data(d))
        found = log_normalizer(source, jax.random.key(_SEED), num_draws, exact=exact)
        shift = self.flow.n_entries * np.log(lam / at)
        return found._replace(value=found.value - shift, elbo=found.elbo - shift)


class LargePrior(NamedTuple):
    """The prior of many variables, with the interface of `Prior`."""

    integral: PriorIntegral

    def log_normalizer(self, lam: float, q: float, num_draws: int, *, exact: bool = True) -> LogNormalizer:
        """log Z_prior on the free entries; `num_draws` and `exact` have no effect, because chains were run before."""
        self.integral.ranges.condition(lam, q, 1.0)  # raises if outside
        return LogNormalizer(*self.integral.log_normalizer(lam, q), np.nan, np.nan, np.nan, Method.INTEGRAL)


def prior_ranges(ranges: Ranges) -> Ranges:
    """The ranges of λ and q, widened to round numbers, so that one prior serves many data sets.

    Only T = 1 is used. With a range of temperatures the prior's flow has the shape of the posterior's, so that both
    draw with the same program.
    """
    low, high = (round_to(2 * np.log10(end)) / 2 for round_to, end in zip((_floor, _ceil), ranges.lam, strict=True))
    q_low, q_high = (round_to(4 * end) / 4 for round_to, end in zip((_floor, _ceil), ranges.q, strict=True))
    temperature = (0.01, 1.0) if ranges.many_temperatures else (1.0, 1.0)
    return Ranges((float(10**low), float(10**high)), (max(q_low, Q_LIMITS[0]), min(q_high, Q_LIMITS[1])), temperature)


def _floor(value: float) -> float:
    return float(np.floor(value + 1e-9))


def _ceil(value: float) -> float:
    return float(np.ceil(value - 1e-9))


def fit_prior(n_features: int, n_query: int, ranges: Ranges, progress: bool = False) -> Prior | LargePrior:
    """The prior's flow or integral: from this process, from the user's cache directory, or computed now.

    Parameters
    ----------
    n_features, n_query
        d and s.
    ranges
        Ranges of λ and q.
    progress
        Whether to show a live line while it is computed.
    """
    shape = (n_features, n_query, ranges)
    if shape not in _known:
        _known[shape] = (_read_or_train if n_query <= _MANY else _read_or_integrate)(*shape, progress)
    return _known[shape]


def _read_or_integrate(n_features: int, n_query: int, ranges: Ranges, progress: bool) -> LargePrior:
    path = _cache_path(n_features, n_query, ranges, f"integral{VERSION}")
    if path is not None and path.exists():
        try:
            h = archive.read(path)[1]["h"]
            if h.ndim == 3 and h.shape[1:] == nodes(n_features, ranges)[1].shape and np.isfinite(h).all():
                return LargePrior(PriorIntegral(n_features, n_query, ranges, h))
        except (archive.ModelFileError, KeyError, ValueError, OSError):
            pass  # of another version, or damaged: integrate again
    with compilation_cache_enabled(), counting_bar(progress, "prior", NUM_PARTS) as report:
        found = integrate_prior(n_features, n_query, ranges, report)
    write_prior(path, {"h": found.h})
    return LargePrior(found)


def _read_or_train(n_features: int, n_query: int, ranges: Ranges, progress: bool) -> Prior:
    query, scatter = np.arange(n_query), Scatter.without_data(n_features)
    path = _cache_path(n_features, n_query, ranges, f"{_STEPS}-{_WEIGHTS}")

    def start(key: Key[Array, ""], *, pretrained: bool = True) -> MatrixFlow:
        return untrained_flow(key, "structured", scatter, query, ranges, pretrained=pretrained)

    if path is not None and path.exists():
        try:
            header, arrays = archive.read(path)
            if all(np.isfinite(array).all() for array in arrays.values()):
                like = partial(start, pretrained=bool(header["pretrained"]))
                return Prior(fill_flow(like, arrays, "flow/"), ranges)
        except (archive.ModelFileError, KeyError, ValueError, OSError):
            pass  # of another version, or damaged: train again
    key_start, key_train = jax.random.split(jax.random.key(_SEED))
    clock = Clock()
    with compilation_cache_enabled(), jax.enable_x64(False), training_bar(progress, clock, name="prior") as report:
        flow = start(key_start)
        problem = Problem(scatter, query, ranges._replace(temperature=(1.0, 1.0)))
        settings, from_zero = (
            default_settings(flow.n_entries, False, steps=_STEPS, plan=each.training_plan(problem.ranges))
            for each in (flow, flow.without_shipped())
        )
        # One device suffices, and other processes may not take part.
        options = {"report": report, "devices": default_device(), "clock": clock, "from_zero": from_zero}
        trained = fit_flow(flow, key_train, problem, settings, may_skip=True, **options)
    if trained.status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # a flow that is not fully trained is not used
    if trained.status is Status.FAILED:
        raise FloatingPointError("training of the prior's flow failed: narrow the ranges of lam and q")
    if trained.history[-1].step > 0:  # the start is made again in no time
        write_prior(path, arrays_of_flow(trained.flow, "flow/"), pretrained=trained.flow.has_shipped)
    return Prior(trained.flow, ranges)


def write_prior(path: Path | None, arrays: dict[str, np.ndarray], **header: bool) -> None:
    """Store the numbers of a prior, if there is a path and the disk allows it."""
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            archive.write(path, {"kind": "prior"} | header, arrays)
        except OSError:  # on a full or read-only disk the prior is computed again next time
            pass


def _cache_path(n_features: int, n_query: int, ranges: Ranges, kind: str) -> Path | None:
    """The file of a prior; None if there is no cache directory, or if other users could write to it."""
    directory = safe_directory()
    if directory is None:
        return None
    box = "-".join(f"{end:.3g}" for end in (*ranges.lam, *ranges.q, ranges.temperature[0]))
    # Each version computes its own: evidence must not depend on which version ran first.
    made_by = f"ggmflow{__version__}-jax{jax.__version__}-jaxlib{jaxlib.__version__}"
    return directory / "priors" / f"d{n_features}-s{n_query}-{box}-{kind}-{made_by}.ggmflow"
