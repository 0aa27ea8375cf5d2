"""Many fits side by side: bootstraps, groups, permutations, on the cores of one machine or on a cluster.

    {name: table} → {name: GraphicalFlow}

joblib runs the fits as `joblib.parallel_config` says: in processes of this machine, or with Dask on many machines. A
finished fit is kept if another table raises an error or a worker is killed and, with a directory, if the program ends.
"""

import hashlib
import os
import secrets
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, overload

import joblib
import numpy as np
from threadpoolctl import threadpool_limits

from ggmflow.data.scatter import Scatter
from ggmflow.errors.argument import ArgumentError
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.estimator.read_data import read_data
from ggmflow.posterior.source import as_seed
from ggmflow.storage.json_values import plain
from ggmflow.storage.replace import replacing
from ggmflow.train.progress import counting_bar
from ggmflow.train.status import Status

_SUFFIX = ".ggmflow"
_HERE = secrets.token_hex(8)  # identifies this process and those it forks
_Result = tuple[str, bytes | Exception]


class FitsFailed(RuntimeError):
    """Some of many fits failed; the error holds the models of the others.

    Attributes
    ----------
    models : dict
        Name → fitted model of the fits that succeeded. Positions count as names where none were given.
    errors : dict
        Name → exception of the fits that failed.
    """

    def __init__(
        self, message: str, models: Mapping[str, GraphicalFlow] = {}, errors: Mapping[str, Exception] = {}
    ) -> None:
        super().__init__(message)
        self.models, self.errors = dict(models), dict(errors)


@overload
def fit_many(
    datasets: Mapping[str, Any],
    model: GraphicalFlow | None = None,
    *,
    n_jobs: int | None = None,
    directory: str | Path | None = None,
) -> dict[str, GraphicalFlow]: ...
@overload
def fit_many(
    datasets: Iterable[Any],
    model: GraphicalFlow | None = None,
    *,
    n_jobs: int | None = None,
    directory: str | Path | None = None,
) -> list[GraphicalFlow]: ...
def fit_many(datasets, model=None, *, n_jobs=None, directory=None):
    """Fit a model to each of many tables.

    Parameters
    ----------
    datasets : mapping of str to table, or sequence of tables
        Tables of every kind that `GraphicalFlow.fit` takes. A fit depends on its name and table only, not on the other
        tables. The names of a sequence are "0", "1", …
    model : GraphicalFlow, optional
        Its parameters are used for every fit, except the seed: the fit called `name` has the random_state
        ``int.from_bytes(sha256(f"{random_state} {name}")[:4])``, so that noise is independent. Its `progress` shows
        one line that counts the fits. Default ``GraphicalFlow()``.
    n_jobs : int, optional
        Number of fits at the same time, as in joblib: −1 for one on each core. Default 1, or the value of
        `joblib.parallel_config`. If there are several processes, each uses one core.
    directory : path, optional
        Every model is saved here as soon as it is fitted, as ``name.ggmflow``. A model that is already here is loaded
        instead of fitted again, if its table and parameters are the same. Needs an integer random_state.

    Returns
    -------
    list or dict of GraphicalFlow
        In the order of the tables; a dict if they had names.

    Raises
    ------
    FitsFailed
        After all fits have ended, if some failed. It holds the models of the others.
    ValueError
        If the directory has a model of other data or parameters under one of the names. Nothing is fitted in this case.

    Examples
    --------
    >>> import ggmflow as gf
    >>> X, _ = gf.simulate.toy_problem(4, 30, random_state=0)
    >>> model = gf.GraphicalFlow(temperature=1.0, steps=100, random_state=0, progress=False)
    >>> halves = gf.fit_many({"first": X[:15], "second": X[15:]}, model)
    >>> list(halves)
    ['first', 'second']
    """
    tables = _by_name(datasets, check_files=directory is not None)
    model = GraphicalFlow() if model is None else model
    if not isinstance(model, GraphicalFlow):
        raise TypeError(f"model must be a GraphicalFlow, got {type(model).__name__}")
    if n_jobs is not None:
        joblib.effective_n_jobs(n_jobs)  # raises for an invalid number
    if directory is not None:
        if not isinstance(model.random_state, Integral):
            needed = "be an integer with a directory, because a fit is found again by its seed"
            raise ArgumentError("random_state", model.random_state, needed)
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
    parameters = _parameters_by_name(model, tables)
    models, errors = ({}, {}) if directory is None else _load_found(directory, tables, parameters)
    jobs = {name: (table, parameters[name]) for name, table in tables.items() if name not in models | errors}
    with counting_bar(model.progress, "fits", len(jobs)) as count:
        for name, result in _fit_all(jobs, n_jobs):
            try:
                models[name] = _receive(result, None if directory is None else _path(directory, name))
            except Exception as error:
                errors[name] = error
            count()
    for each in models.values():
        each.progress = model.progress
    if errors:
        raise FitsFailed(_failure_message(errors, len(tables), directory), models, errors)
    ordered = {name: models[name] for name in tables}
    return ordered if isinstance(datasets, Mapping) else list(ordered.values())


def _parameters_by_name(model: GraphicalFlow, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Parameters of each fit: those of the model, with a seed for each name."""
    root, shared = model.random_state, model.get_params()
    if not isinstance(shared["query"], str | Integral | None):
        shared["query"] = list(shared["query"])  # the first fit would exhaust an iterator
    root = int(root) if isinstance(root, Integral) else as_seed(root)
    return {name: {**shared, "progress": False, "random_state": _seed(root, name)} for name in names}


def _path(directory: Path, name: str) -> Path:
    return directory / f"{name}{_SUFFIX}"


def _load_found(
    directory: Path, tables: Mapping[str, Any], parameters: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, GraphicalFlow], dict[str, Exception]]:
    """Models that an earlier call has saved, and the errors of tables that cannot be compared with them."""
    models, errors = {}, {}
    for name in [name for name in tables if _path(directory, name).exists()]:
        try:
            data = read_data(tables[name], parameters[name])
        except Exception as error:
            errors[name] = error
            continue
        models[name] = _load_same(_path(directory, name), parameters[name], data)
    return models, errors


def _receive(result: bytes | Exception, path: Path | None) -> GraphicalFlow:
    """The model of a finished fit, saved if there is a path; raises the exception of a failed fit."""
    if isinstance(result, Exception):
        raise result
    if path is not None:
        _write(path, result)
    return _from_bytes(result)


def _failure_message(errors: Mapping[str, Exception], num_fits: int, directory: Path | None) -> str:
    shown = [f"{name!r} ({type(error).__name__}: {error})" for name, error in list(errors.items())[:3]]
    more = f" and {len(errors) - 3} more, see its attribute `errors`" if len(errors) > 3 else ""
    place = "the attribute `models` of this error" + ("" if directory is None else f", and in {directory}")
    return f"{len(errors)} of {num_fits} fits failed: {'; '.join(shown)}{more}. The others are in {place}"


def _by_name(datasets: Any, check_files: bool) -> dict[str, Any]:
    """Tables by name."""
    single = isinstance(datasets, str | os.PathLike | Scatter) or getattr(datasets, "ndim", 0) in (1, 2)
    if single or hasattr(datasets, "columns") or not isinstance(datasets, Iterable):
        raise TypeError(
            "datasets must be a sequence of tables, or a mapping of names to tables, "
            f"got {type(datasets).__name__}; for one table use GraphicalFlow.fit"
        )
    if not isinstance(datasets, Mapping):
        return {str(k): table for k, table in enumerate(datasets)}
    for name in datasets:
        if not isinstance(name, str):
            raise TypeError(f"names of datasets must be strings, got {name!r}")
        if check_files and (not name or name.startswith(".") or set(name) & set('/\\:*?"<>|\0\n')):
            raise ArgumentError("datasets", name, "have names that are valid names of files, with a directory")
    folded = Counter(name.casefold() for name in datasets)
    if check_files and (same := [name for name in datasets if folded[name.casefold()] > 1]):
        raise ArgumentError(
            "datasets", same, "have names that differ by more than upper and lower case, with a directory"
        )
    return dict(datasets)


def _seed(root: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{root} {name}".encode()).digest()[:4])


def _load_same(path: Path, parameters: dict[str, Any], data: Scatter) -> GraphicalFlow:
    """A model found in the directory; raises ValueError if its parameters or data are not the given ones."""
    model = GraphicalFlow.load(path)
    saved = model.get_params()
    changes = [
        f"{name} was {saved[name]!r} and is {parameters[name]!r}"
        for name in parameters
        if name != "progress" and _comparable(saved[name]) != _comparable(parameters[name])
    ]
    (header, arrays), (other_header, others) = model.scatter_.to_arrays(), data.to_arrays()
    if plain(header) != plain(other_header) or any(
        not np.array_equal(array, others[name], equal_nan=True) for name, array in arrays.items()
    ):
        changes.insert(0, "its data differ")
    if changes:
        raise ValueError(f"{path} holds another fit, {'; '.join(changes)}: choose another directory, or delete it")
    return model


def _write(path: Path, content: bytes) -> None:
    """Write a model file; on a full disk only warn, because the models in memory must not be lost."""
    try:
        with replacing(path) as temporary:
            Path(temporary).write_bytes(content)
    except OSError as error:
        message = f"{path} could not be written ({error.strerror or error}): this model is in memory only"
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _to_bytes(model: GraphicalFlow) -> bytes:
    """The content of a model file, the form in which workers return models."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := Path(folder) / f"model{_SUFFIX}")
        return path.read_bytes()


def _from_bytes(content: bytes) -> GraphicalFlow:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / f"model{_SUFFIX}").write_bytes(content)
        return GraphicalFlow.load(path)


def _comparable(value: Any) -> Any:
    return plain(value.tolist() if isinstance(value, np.ndarray) else value)


def _fit_all(jobs: dict[str, tuple[Any, dict[str, Any]]], n_jobs: int | None) -> Iterator[_Result]:
    """Yield the model file of each fit when it is finished. A fit whose worker is killed is repeated."""
    # One fit per batch, yielded when it is finished: no finished fit waits for another.
    options: dict[str, Any] = {"n_jobs": n_jobs, "return_as": "generator_unordered", "batch_size": 1}
    left = dict(jobs)

    def run(names: Iterable[str]) -> Iterator[_Result]:
        # Tables in tuples, which Dask keeps with the task: a bare array is sent to one worker and lost if that dies.
        calls = [joblib.delayed(_fit)(name, (left[name][0],), left[name][1], _process()) for name in names]
        results: Any = joblib.Parallel(**options)(calls)
        for name, result in results:
            del left[name]
            yield name, result

    before = len(left) + 1
    while len(left) < before:  # as long as each round finishes some fits
        before = len(left)
        try:
            yield from run(list(left))
            return
        except Exception:  # of joblib: the exceptions of a fit are results
            continue
    # A table that kills its worker makes others fail too, so each of the rest is fitted alone.
    for name in list(left):
        try:
            yield from run([name])
        except Exception as error:
            yield name, error


def _process() -> tuple[str, int]:
    """Identity of this process. Its number is not enough: the first process of every container is 1."""
    return _HERE, os.getpid()


def _fit(name: str, table: tuple[Any], parameters: dict[str, Any], parent: tuple[str, int]) -> _Result:
    """One fit, in this process or another."""
    elsewhere = _process() != parent
    if elsewhere:
        os.environ.setdefault("NPROC", "1")  # threads of XLA, which it starts once; default one per core
    try:
        with threadpool_limits(1 if elsewhere else None):
            model = GraphicalFlow(**parameters).fit(table[0])
        if model.status_ == Status.INTERRUPTED:
            raise KeyboardInterrupt
        return name, _to_bytes(model)
    except Exception as error:
        return name, error
