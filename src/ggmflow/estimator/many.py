"""Many fits side by side: bootstraps, groups, permutations, on the cores of one machine or on a cluster.

    {name: table} → {name: GraphicalFlow}

joblib runs the fits, wherever `joblib.parallel_config` says: in processes of this machine, or with Dask on many. What
is finished is never lost: not to an error in another table, not to a worker that is killed, and with a directory not
to the end of the program.
"""

import hashlib
import os
import secrets
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, overload

import joblib
import numpy as np
from threadpoolctl import threadpool_limits

from ggmflow.data.scatter import Scatter
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.posterior.source import as_seed
from ggmflow.storage.json_values import plain
from ggmflow.storage.replace import replacing
from ggmflow.train.progress import counting_bar

_SUFFIX = ".ggmflow"
_HERE = secrets.token_hex(8)  # of this process, and of those it forks
_Result = tuple[str, bytes | Exception]


class FitsFailed(RuntimeError):
    """Some of many fits failed; the others are not lost.

    Attributes
    ----------
    models : dict
        Name → fitted model of the fits that succeeded. Positions count as names where none were given.
    errors : dict
        Name → what was raised by the others.
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
        Tables of every kind that `GraphicalFlow.fit` takes. Names that stay make fits that stay: a fit does not
        change when other tables come or go. Those of a sequence are "0", "1", …
    model : GraphicalFlow, optional
        Its parameters are those of every fit, but for the seed: the fit called `name` has the random_state
        ``int.from_bytes(sha256(f"{random_state} {name}")[:4])``, so that noise is independent. Its `progress` shows
        one line that counts the fits. Default ``GraphicalFlow()``.
    n_jobs : int, optional
        Fits at the same time, as in joblib: −1 for one on each core. Default 1, or what `joblib.parallel_config` says.
        Each process of more than one uses one core.
    directory : path, optional
        Every model is saved here as soon as it is fitted, as ``name.ggmflow``. One that is found here is loaded
        instead of fitted again, if it belongs to the same table and parameters. Needs an integer random_state.

    Returns
    -------
    list or dict of GraphicalFlow
        In the order of the tables; a dict if they had names.

    Raises
    ------
    FitsFailed
        After all fits have ended, if some failed. It has those that did not.
    ValueError
        If the directory has a model of other data or parameters under one of the names. Nothing is fitted then.

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
        joblib.effective_n_jobs(n_jobs)  # refuses what makes no sense
    root, shared = model.random_state, model.get_params()
    if directory is not None and not isinstance(root, Integral):
        raise ValueError("with a directory the model needs an integer random_state: without one no fit is found again")
    if not isinstance(shared["query"], str | Integral | None):
        shared["query"] = list(shared["query"])  # the first fit would use an iterator up
    root = int(root) if isinstance(root, Integral) else as_seed(root)
    asked = {name: {**shared, "progress": False, "random_state": _seed(root, name)} for name in tables}
    found, errors = {}, {}
    if directory is not None:
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for name in [name for name in tables if (directory / f"{name}{_SUFFIX}").exists()]:
            try:
                wanted = GraphicalFlow(**asked[name])._read(tables[name])
            except Exception as error:
                errors[name] = error
                continue
            found[name] = _load_same(directory / f"{name}{_SUFFIX}", asked[name], wanted)
    left = {name: (table, asked[name]) for name, table in tables.items() if name not in found | errors}
    with counting_bar(model.progress, "fits", len(left)) as count:
        for name, result in _fit_all(left, n_jobs):
            if isinstance(result, Exception):
                errors[name] = result
            else:
                if directory is not None:
                    _keep(directory / f"{name}{_SUFFIX}", result)
                try:
                    found[name] = _from_bytes(result)
                except OSError as error:  # a full temporary directory is no reason to lose the others
                    errors[name] = error
            count()
    for each in found.values():
        each.progress = model.progress
    if errors:
        shown = [f"{name!r} ({type(error).__name__}: {error})" for name, error in list(errors.items())[:3]]
        more = f" and {len(errors) - 3} more, see its attribute `errors`" if len(errors) > 3 else ""
        kept = "the attribute `models` of this error" + ("" if directory is None else f", and in {directory}")
        message = f"{len(errors)} of {len(tables)} fits failed: {'; '.join(shown)}{more}. The others are in {kept}"
        raise FitsFailed(message, found, errors)
    ordered = {name: found[name] for name in tables}
    return ordered if isinstance(datasets, Mapping) else list(ordered.values())


def _by_name(datasets: Any, check_files: bool) -> dict[str, Any]:
    """Tables by name."""
    one = isinstance(datasets, str | os.PathLike | Scatter) or getattr(datasets, "ndim", 0) in (1, 2)
    if one or hasattr(datasets, "columns") or not isinstance(datasets, Iterable):
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
            raise ValueError(f"with a directory names become names of files, which {name!r} cannot be")
    folded = [name.casefold() for name in datasets]
    if check_files and len(set(folded)) < len(folded):
        raise ValueError("with a directory names must differ by more than upper and lower case")
    return dict(datasets)


def _seed(root: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{root} {name}".encode()).digest()[:4])


def _load_same(path: Path, asked: dict[str, Any], wanted: Scatter) -> GraphicalFlow:
    """A model found in the directory, which must be the one asked for."""
    model = GraphicalFlow.load(path)
    saved = model.get_params()
    changes = [
        f"{name} was {saved[name]!r} and is {asked[name]!r}"
        for name in asked
        if name != "progress" and _comparable(saved[name]) != _comparable(asked[name])
    ]
    (header, arrays), (other_header, others) = model.scatter_.to_arrays(), wanted.to_arrays()
    if plain(header) != plain(other_header) or any(
        not np.array_equal(array, others[name], equal_nan=True) for name, array in arrays.items()
    ):
        changes.insert(0, "its data differ")
    if changes:
        raise ValueError(f"{path} holds another fit, {'; '.join(changes)}: choose another directory, or delete it")
    return model


def _keep(path: Path, content: bytes) -> None:
    """A full disk is no reason to lose the models that are in memory."""
    try:
        with replacing(path) as temporary:
            Path(temporary).write_bytes(content)
    except OSError as error:
        message = f"{path} could not be written ({error.strerror or error}): this model is in memory only"
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def _to_bytes(model: GraphicalFlow) -> bytes:
    """The content of a model file, the form in which models travel."""
    with tempfile.TemporaryDirectory() as place:
        model.save(path := Path(place) / f"model{_SUFFIX}")
        return path.read_bytes()


def _from_bytes(content: bytes) -> GraphicalFlow:
    with tempfile.TemporaryDirectory() as place:
        (path := Path(place) / f"model{_SUFFIX}").write_bytes(content)
        return GraphicalFlow.load(path)


def _comparable(value: Any) -> Any:
    return plain(value.tolist() if isinstance(value, np.ndarray) else value)


def _fit_all(jobs: dict[str, tuple[Any, dict[str, Any]]], n_jobs: int | None) -> Iterator[_Result]:
    """Model files as they are finished. A fit whose worker is killed is done again."""
    # One fit at a time for each worker, handed over at once: nothing finished waits for its neighbour.
    options: dict[str, Any] = {"n_jobs": n_jobs, "return_as": "generator_unordered", "batch_size": 1}
    left = dict(jobs)

    def run(names: Iterable[str]) -> Iterator[_Result]:
        # In tuples, which Dask keeps with the task. An array of its own would be put on one worker, and die with it.
        calls = [joblib.delayed(_fit)(name, (left[name][0],), left[name][1], _process()) for name in names]
        results: Any = joblib.Parallel(**options)(calls)
        for name, result in results:
            del left[name]
            yield name, result

    before = len(left) + 1
    while len(left) < before:  # as long as something is finished in between
        before = len(left)
        try:
            yield from run(list(left))
            return
        except Exception:  # of the machinery: those of a fit are results
            continue
    # A table that takes its worker down takes others along. Alone it takes nobody.
    for name in list(left):
        try:
            yield from run([name])
        except Exception as error:
            yield name, error


def _process() -> tuple[str, int]:
    """Which process this is. Its number is not enough: the first one of every container is 1."""
    return _HERE, os.getpid()


def _fit(name: str, table: tuple[Any], parameters: dict[str, Any], parent: tuple[str, int]) -> _Result:
    """One fit, in whichever process."""
    elsewhere = _process() != parent
    if elsewhere:
        os.environ.setdefault("NPROC", "1")  # the threads that XLA makes when it starts; else one for each core
    try:
        with threadpool_limits(1 if elsewhere else None):
            model = GraphicalFlow(**parameters).fit(table[0])
        if model.status_ == "interrupted":
            raise KeyboardInterrupt
        return name, _to_bytes(model)
    except Exception as error:
        return name, error
