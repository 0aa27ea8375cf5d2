"""GraphicalFlow: from a table to the posterior of its precision matrix at every (λ, q, T) of a range, in one fit.

    X → Scatter(S, n) → flow q(Ω | λ, q, T), trained once → posterior(λ, q, T)

It is a scikit-learn estimator: parameters are stored as given and checked in `fit`, results end in an underscore.
"""

import inspect
import os
import warnings
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import gammaln
from sklearn.base import BaseEstimator
from sklearn.covariance import log_likelihood
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ggmflow import io
from ggmflow.cache import compilation_cache_enabled
from ggmflow.data import Scatter
from ggmflow.flow.build import Architecture, MatrixFlow, build_flow
from ggmflow.posterior import Posterior
from ggmflow.progress import training_bar
from ggmflow.sampling import FlowSource, chunk_size
from ggmflow.source import RandomState, as_key
from ggmflow.train import CHUNK, Report, Settings, reports_from_array, train

_COOLING = (5.0, 100)  # T₀ and the number of stages of the published cooling


class _Unreadable:
    """A parameter that can be set but not read as an attribute.

    scikit-learn takes whatever has an attribute `transform` for a transformer and calls it, even if it is None.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self.name] = value

    def __get__(self, instance: Any, owner: type | None = None) -> NoReturn:
        raise AttributeError(f"{self.name} is a parameter and no method: get_params()[{self.name!r}] has its value")


class GraphicalFlow(BaseEstimator):
    """Posterior of a Gaussian graphical model for a continuum of penalties λ|ω_ij|^q, from one fit.

    Parameters
    ----------
    lam : "auto", float or (low, high)
        Range of the shrinkage λ > 0 in the working scale. "auto" spans from fifty times below the largest off-diagonal
        entry of S, where the graphical lasso has no edge left, up to it.
    q : float or (low, high)
        Range of the exponent q > 0.
    temperature : float or (low, high)
        Range of the temperature; 1 is the posterior, towards 0 it contracts to its mode. 1.0 trains the posterior
        alone, faster and more accurately.
    query : None, str, int or list of them
        Columns whose Markov blanket is wanted, by name or position. None is the whole matrix.
    standardize : bool
        Scale columns to unit variance (ddof=0) before anything else. They are always centred.
    transform : None or "nonparanormal"
        Replace columns by their normal scores first.
    missing : {"error", "drop", "em"}
        What to do about missing values.
    architecture : {"structured", "paper"}
        The flow. "paper" is the published one; it knows two temperatures, 1 and the lowest of the range.
    steps, batch_size : int, optional
        Gradient steps and draws per step; the defaults follow from the number of entries and the ranges.
    random_state : int, numpy Generator or RandomState, optional
        Seed. The same seed gives the same model on the same machine.
    progress : bool
        Show a live line on standard error while training.

    Attributes
    ----------
    lam_, q_ : float
        Chosen condition: λ maximizes the ELBO with the published constants at q = 1, or at the end of the range of q
        next to 1.
    precision_ : (d, d) array, or (s, d) with a query
        Posterior mean at (lam_, q_), in the scale of X.
    covariance_ : (d, d) array
        Its inverse; only without a query.
    location_ : (d,) array
        Column means.
    lam_range_, q_range_, temperature_range_ : (low, high)
        What the flow was trained for.
    scatter_ : Scatter
        The data as the model saw them.
    query_ : (s,) array of int
        Columns of the query, all of them without one.
    flow_ : MatrixFlow
        The trained flow.
    history_ : DataFrame
        Training: step, held-out elbo, ess, skipped.
    n_iter_ : int
        Steps trained.
    status_ : str
        "finished", "stopped early" or "interrupted".
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import ggmflow as gf
    >>> X, _ = gf.simulate.toy_problem(4, 30, random_state=0)
    >>> model = gf.GraphicalFlow(temperature=1.0, steps=100, random_state=0, progress=False).fit(X)
    >>> post = model.posterior(lam=2.0, q=0.5)
    >>> post.mean().shape
    (4, 4)
    """

    transform = _Unreadable()

    def __init__(
        self,
        lam: Literal["auto"] | float | tuple[float, float] = "auto",
        q: float | tuple[float, float] = (0.25, 1.25),
        temperature: float | tuple[float, float] = (0.01, 1.0),
        query: str | int | Iterable[str | int] | None = None,
        standardize: bool = True,
        transform: str | None = None,
        missing: str = "error",
        architecture: Architecture = "structured",
        steps: int | None = None,
        batch_size: int | None = None,
        random_state: RandomState = None,
        progress: bool = True,
    ):
        self.lam = lam
        self.q = q
        self.temperature = temperature
        self.query = query
        self.standardize = standardize
        self.transform = transform
        self.missing = missing
        self.architecture: Architecture = architecture
        self.steps = steps
        self.batch_size = batch_size
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: None = None, *, checkpoint: str | Path | None = None) -> Self:
        """Train the flow on a table whose rows are observations.

        Parameters
        ----------
        X : (n, d) array-like, pandas or polars DataFrame, or path of a CSV file
            Data, or a `Scatter` made elsewhere.
        y
            Ignored.
        checkpoint
            A file that is written every few seconds. If it exists, training resumes from it, with the same result bit
            by bit as if it had not been interrupted.

        Returns
        -------
        self
            After Ctrl-C the best model so far, with a warning.
        """
        scatter = self._read(X)
        low, high = self._ranges(scatter)
        query = np.arange(scatter.n_features) if self.query is None else scatter.index(self.query)
        key = as_key(self.random_state)
        for name in ("flow_", "_snapshots", "_precision"):  # an earlier fit's, should this one not end well
            vars(self).pop(name, None)
        self.scatter_, self.query_ = scatter, query
        self.lam_range_, self.q_range_, self.temperature_range_ = (
            _readable(np.exp(low[0]), np.exp(high[0])),
            _readable(low[1], high[1]),
            _readable(np.exp(low[2]), np.exp(high[2])),
        )
        self._low, self._high = low, high
        flow = self._untrained(jax.random.fold_in(key, 0))
        settings = self._settings(flow.n_entries)
        snapshot_at = ()
        if self.architecture == "paper":
            settings = settings._replace(cooling=(_COOLING[0], self.temperature_range_[0], _COOLING[1]))
            snapshot_at = (self._warmest(), self.temperature_range_[0])
        with compilation_cache_enabled(), jax.enable_x64(False), training_bar(self.progress) as report:
            trained = train(
                flow,
                jax.random.fold_in(key, 1),
                low,
                high,
                settings,
                report=report,
                checkpoint=None if checkpoint is None else Path(checkpoint),
                snapshot_at=snapshot_at,
            )
        if trained.status == "failed":
            raise FloatingPointError(
                "training failed: the ELBO was never finite. Narrow the ranges of lam, q and temperature, "
                "above all away from their lowest values"
            )
        self.flow_, self._snapshots = trained.flow, trained.snapshots
        self.history_ = pd.DataFrame(trained.history, columns=list(Report._fields))
        self.n_iter_ = int(self.history_["step"].iloc[-1])
        self.status_ = trained.status
        if trained.status == "interrupted":
            warnings.warn(
                f"interrupted after {self.n_iter_} of {settings.steps} steps: this is the best model so far. "
                "Check posterior(...).diagnostics() before trusting it",
                ConvergenceWarning,
                stacklevel=2,
            )
        elif (skipped := int(self.history_["skipped"].iloc[-1])) > 0.05 * self.n_iter_:
            warnings.warn(
                f"{skipped} of {self.n_iter_} steps were skipped because their gradient was not finite. "
                "Check posterior(...).diagnostics(); narrower ranges of lam, q and temperature may help",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._select()
        return self

    def posterior(
        self,
        lam: float | None = None,
        q: float | None = None,
        temperature: float = 1.0,
        *,
        num_draws: int = 4000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """The posterior at one condition within the fitted ranges.

        Parameters
        ----------
        lam, q
            Default `lam_`, `q_`.
        temperature
            1 for the posterior.
        num_draws, random_state
            Of the draws behind its estimates.

        Returns
        -------
        Posterior
        """
        check_is_fitted(self, "flow_")
        condition = self._condition(lam, q, temperature)
        lam, q, temperature = float(np.exp(condition[0])), float(condition[1]), float(np.exp(condition[2]))
        source = FlowSource(self._flow_at(temperature), condition, self._order())
        names = self.scatter_.names
        return Posterior(
            source, names, self.query_, lam, q, temperature, num_draws=num_draws, random_state=random_state
        )

    @property
    def precision_(self) -> Float[np.ndarray, "s d"]:
        """Posterior mean at (lam_, q_) and T = 1, or the temperature of the range next to it, in the scale of X."""
        check_is_fitted(self, "flow_")
        if not hasattr(self, "_precision"):
            scale = self.scatter_.scale
            self._precision = self.posterior(temperature=self._warmest()).mean() / scale[self.query_][:, None] / scale
        return self._precision

    @property
    def covariance_(self) -> Float[np.ndarray, "d d"]:
        """Inverse of `precision_`; a query gives rows of the precision matrix only, and no covariance."""
        check_is_fitted(self, "flow_")
        if len(self.query_) < self.scatter_.n_features:
            raise AttributeError("with a query only rows of the precision matrix are known, so there is no covariance_")
        return np.linalg.inv(self.precision_[np.argsort(self.query_)])  # rows in the order of the columns

    @property
    def location_(self) -> Float[np.ndarray, " d"]:
        """Column means."""
        check_is_fitted(self, "flow_")
        return self.scatter_.mean

    def score(self, X: Any, y: None = None) -> float:
        """Mean log-likelihood of new rows under N(location_, covariance_), in the scale of X.

        After transform="nonparanormal" it is that of their normal scores.

        Parameters
        ----------
        X : (m, d) array-like or table
            New rows.
        y
            Ignored.
        """
        check_is_fitted(self, "flow_")
        if len(self.query_) < self.scatter_.n_features:
            raise ValueError("score needs the whole precision matrix: fit without a query")
        if not isinstance(X, str | os.PathLike):  # a file's columns are found by name
            validate_data(self, X, reset=False, skip_check_array=True)
        working = self.scatter_.working(X)
        scale = self.scatter_.scale
        precision = self.precision_[np.argsort(self.query_)] * scale * scale[:, None]
        return float(log_likelihood(working.T @ working / len(working), precision) - np.sum(np.log(scale)))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file of plain arrays: flow, ranges, data summary, versions.

        Parameters
        ----------
        path
            The file; an existing one is replaced only when the new one is complete.
        """
        check_is_fitted(self, "flow_")
        scatter_header, scatter_arrays = self.scatter_.to_arrays()
        parameters = self.get_params(deep=False)
        for name in ("lam", "q", "temperature"):
            if isinstance(parameters[name], np.ndarray):
                parameters[name] = parameters[name].tolist()
        if not isinstance(parameters["random_state"], Integral | None):
            parameters["random_state"] = None  # a generator has moved on: its state would not reproduce this fit
        if not isinstance(parameters["query"], str | Integral | None):
            parameters["query"] = [entry if isinstance(entry, str) else int(entry) for entry in parameters["query"]]
        header = {
            "kind": "model",
            "parameters": parameters,
            "scatter": scatter_header,
            "low": self._low.tolist(),
            "high": self._high.tolist(),
            "query": self.query_.tolist(),
            "feature_names": hasattr(self, "feature_names_in_"),
            "status": self.status_,
            "chosen": [self.lam_, self.q_],
            "snapshots": list(self._snapshots),
        }
        arrays = {"history": self.history_.to_numpy(dtype=float)}
        arrays |= {f"scatter/{name}": array for name, array in scatter_arrays.items()}
        for k, flow in enumerate([self.flow_, *self._snapshots.values()]):
            leaves = jax.tree.leaves(eqx.filter(flow, eqx.is_array))
            arrays |= {f"flow{k}/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        io.write(path, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote. Nothing in the file is executed.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        GraphicalFlow
            Fitted; the same `random_state` gives the same draws.
        """
        header, arrays = io.read(path)
        try:
            return cls._from_file(header, arrays)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise io.ModelFileError(f"{path} is no ggmflow model, or was changed: {error}") from None

    @classmethod
    def _from_file(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        if header["kind"] != "model":
            raise ValueError(f"it holds a {header['kind']}")
        parameters: dict[str, Any] = {
            name: tuple(value) if name in ("lam", "q", "temperature") and isinstance(value, list) else value
            for name, value in header["parameters"].items()
        }
        model = cls(**parameters)
        prefix = "scatter/"
        stored = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
        model.scatter_ = Scatter.from_arrays(header["scatter"], stored)
        model.query_ = model.scatter_.index(header["query"])
        model._low, model._high = (np.array(header[name], dtype=float) for name in ("low", "high"))
        low, high = model._low, model._high
        if not (low.shape == high.shape == (3,) and np.all(low <= high) and np.all(np.abs([low, high]) < 100)):
            raise ValueError("its ranges make no sense")
        model.lam_range_, model.q_range_, model.temperature_range_ = (
            _readable(np.exp(low[0]), np.exp(high[0])),
            _readable(low[1], high[1]),
            _readable(np.exp(low[2]), np.exp(high[2])),
        )
        # The shapes of a new flow show which arrays to expect; nothing about its structure is read from the file, and
        # nothing is allocated that is not in it.
        skeleton = eqx.filter_eval_shape(model._untrained, jax.random.key(0))
        flows = [_fill(skeleton, arrays, f"flow{k}/") for k in range(1 + len(header["snapshots"]))]
        model.flow_ = flows[0]
        model._snapshots = dict(zip(map(float, header["snapshots"]), flows[1:], strict=True))
        model.history_ = pd.DataFrame(reports_from_array(arrays["history"]), columns=list(Report._fields))
        model.n_iter_ = int(model.history_["step"].iloc[-1])
        model.status_ = str(header["status"])
        model.lam_, model.q_ = map(float, header["chosen"])
        model.n_features_in_ = model.scatter_.n_features
        if header["feature_names"]:
            vars(model)["feature_names_in_"] = np.array(model.scatter_.names, dtype=object)
        return model

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as in scikit-learn.

        Parameters
        ----------
        deep
            Of no effect: no parameter is an estimator.
        """
        return {name: vars(self)[name] for name in inspect.signature(type(self)).parameters}

    def __sklearn_tags__(self):
        """What scikit-learn should know: whether missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing in ("drop", "em")
        return tags

    def _read(self, X: Any) -> Scatter:
        if isinstance(X, Scatter):
            scatter = X
        else:
            transform = self.get_params(deep=False)["transform"]
            scatter = Scatter.from_data(X, standardize=self.standardize, transform=transform, missing=self.missing)
        vars(self).pop("feature_names_in_", None)
        if not isinstance(X, Scatter | str | os.PathLike):
            validate_data(self, X, skip_check_array=True)  # pyright: ignore[reportArgumentType]
        self.n_features_in_ = scatter.n_features
        return scatter

    def _ranges(self, scatter: Scatter) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest [log λ, q, log T]."""
        if isinstance(self.lam, str):
            if self.lam != "auto":
                raise ValueError(f"lam must be 'auto', a positive number or (low, high), got {self.lam!r}")
            largest = np.max(np.abs(scatter.matrix - np.diag(np.diag(scatter.matrix))))
            # Uncorrelated columns leave nothing to shrink; the scale of S is then all there is.
            largest = max(largest, 0.05 * float(np.mean(np.diag(scatter.matrix))))
            lam = (largest / 50, largest)
        else:
            lam = _range("lam", self.lam)
        q, temperature = _range("q", self.q), _range("temperature", self.temperature)
        if q[0] < 0.1 or q[1] > 2:
            raise ValueError(f"q must lie between 0.1 and 2, got {self.q!r}")
        if temperature[1] > 1:
            raise ValueError(f"temperature must not exceed 1, which is the posterior, got {self.temperature!r}")
        ends = np.array([np.log(lam), q, np.log(temperature)])
        return ends[:, 0], ends[:, 1]

    def _settings(self, n_entries: int) -> Settings:
        """Steps and batch; more entries get fewer draws, a range of temperatures more steps."""
        steps = self._steps(n_entries)
        batch = self.batch_size
        if batch is None:
            batch = 128 if n_entries <= 300 else 64 if n_entries <= 3000 else 32
        if isinstance(batch, bool) or not isinstance(batch, Integral) or batch < 2:
            raise ValueError(f"batch_size must be an integer of at least 2, got {batch!r}")
        num_draws = 2 if batch < 16 else 4
        # Cold posteriors are narrow: what they need corrected is larger, and a higher rate gets there in time.
        rate = 1.5e-2 if self.temperature_range_[0] < self.temperature_range_[1] else 1e-2
        conditions = max(1, int(batch) // num_draws)
        return Settings(steps=steps, num_conditions=conditions, num_draws=num_draws, learning_rate=rate)

    def _steps(self, n_entries: int) -> int:
        if self.steps is not None:
            if isinstance(self.steps, bool) or not isinstance(self.steps, Integral) or self.steps < 1:
                raise ValueError(f"steps must be a positive integer, got {self.steps!r}")
            # The published cooling needs a stage at T = 1 and one at the end.
            return max(-(-int(self.steps) // CHUNK), 2 if self.architecture == "paper" else 1) * CHUNK
        cold = self.temperature_range_[0] < self.temperature_range_[1]
        steps = 800 if n_entries <= 300 else 900 if n_entries <= 1000 else 600
        return (1500 if n_entries <= 1000 else 1000) if cold else steps

    def _untrained(self, key) -> MatrixFlow:
        scatter = self.scatter_.reorder(self._order())
        with jax.enable_x64(False):
            return build_flow(
                key, self.architecture, scatter.matrix, scatter.n, len(self.query_), self._low, self._high
            )

    def _order(self) -> Int[np.ndarray, " d"]:
        """Columns of the data in the flow's order: query variables first."""
        rest = np.setdiff1d(np.arange(self.scatter_.n_features), self.query_)
        return np.concatenate([self.query_, rest])

    def _warmest(self) -> float:
        """1, or the temperature of the range that is next to it."""
        return float(np.clip(1.0, *self.temperature_range_))

    def _flow_at(self, temperature: float) -> MatrixFlow:
        if self.architecture != "paper":
            return self.flow_
        for known, flow in self._snapshots.items():
            if np.isclose(known, temperature, rtol=1e-5):
                return flow
        known = " and ".join(f"{value:g}" for value in self._snapshots)
        why = " (it was interrupted while it cooled)" if self.status_ == "interrupted" else ""
        raise ValueError(f"the published architecture knows the temperatures {known} only{why}, got {temperature:g}")

    def _condition(self, lam: float | None, q: float | None, temperature: float) -> Float[np.ndarray, " 3"]:
        values = {
            "lam": (self.lam_ if lam is None else lam, self.lam_range_),
            "q": (self.q_ if q is None else q, self.q_range_),
            "temperature": (temperature, self.temperature_range_),
        }
        checked = []
        for name, (value, (low, high)) in values.items():
            if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
                raise ValueError(f"{name} must be a number, got {value!r}")
            if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
                raise ValueError(
                    f"{name}={value:g} is outside the fitted range {low:g} … {high:g}: fit again with a wider {name}"
                )
            checked.append(float(np.clip(value, low, high)))
        return np.array([np.log(checked[0]), checked[1], np.log(checked[2])])

    def _select(self) -> None:
        """λ by the ELBO with the published constants, at the q of the range that is nearest to 1."""
        self.q_ = float(np.clip(1.0, *self.q_range_))
        self.lam_ = self.lam_range_[0]
        if self.lam_range_[0] == self.lam_range_[1]:
            return
        temperature = self._warmest()
        grid = np.geomspace(*self.lam_range_, 17)
        key = jax.random.key(0)  # the same noise everywhere, so that the curve is smooth
        num_draws = chunk_size(self.flow_.n_entries)
        elbo = []
        for lam in grid:
            source = FlowSource(self._flow_at(temperature), self._condition(lam, self.q_, temperature), self._order())
            _, log_q, log_p = source.entries(key, num_draws)
            elbo.append(np.mean(log_p.astype(float) - log_q) + self._published_constants(lam, self.q_))
        known = np.isfinite(elbo)
        if np.any(known):
            self.lam_ = float(np.clip(_peak(np.log(grid[known]), np.array(elbo)[known]), *self.lam_range_))

    def _published_constants(self, lam: float, q: float) -> float:
        """Σ_{i<j} log(q λ^{1/q}/(2Γ(1/q))): normalizers of the off-diagonal factors as if they were independent."""
        pairs = self.flow_.n_entries - self.flow_.n_query
        return float(pairs * (np.log(q / 2) + np.log(lam) / q - gammaln(1 / q)))


def _range(name: str, value: Any) -> tuple[float, float]:
    """(low, high) from a positive number or a pair of them."""
    pair = value if isinstance(value, tuple | list | np.ndarray) else (value, value)
    numbers = [entry for entry in pair if isinstance(entry, Real) and not isinstance(entry, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not all(0 < float(entry) < np.inf for entry in numbers):
        raise ValueError(f"{name} must be a positive number or a pair (low, high) of them, got {value!r}")
    low, high = float(numbers[0]), float(numbers[1])
    if low > high:
        raise ValueError(f"{name}={value!r}: the first number must not exceed the second")
    return low, high


def _readable(low: float, high: float) -> tuple[float, float]:
    """Ends of a range without the last digits' noise of log and exp."""
    return float(f"{low:.12g}"), float(f"{high:.12g}")


def _peak(x: Float[np.ndarray, " k"], y: Float[np.ndarray, " k"]) -> float:
    """exp of where the parabola through the highest point and its neighbours peaks; an end if that is highest."""
    k = int(np.argmax(y))
    if k in (0, len(x) - 1):
        return float(np.exp(x[k]))
    a, b, _ = np.polyfit(x[k - 1 : k + 2] - x[k], y[k - 1 : k + 2], 2)
    return float(np.exp(x[k] - b / (2 * a)))


def _fill(skeleton: Any, arrays: dict[str, np.ndarray], prefix: str) -> MatrixFlow:
    """Put stored arrays into a flow of the same shape."""
    shapes, static = eqx.partition(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    leaves, structure = jax.tree.flatten(shapes)
    stored = [arrays[f"{prefix}{k}"] for k in range(len(leaves))]
    for leaf, array in zip(leaves, stored, strict=True):
        if leaf.shape != array.shape or leaf.dtype != array.dtype:
            found, expected = f"{array.dtype}{array.shape}", f"{leaf.dtype}{leaf.shape}"
            raise ValueError(f"an array is {found} where {expected} is expected")
    with jax.enable_x64(False):
        return eqx.combine(jax.tree.unflatten(structure, [jnp.asarray(array) for array in stored]), static)
