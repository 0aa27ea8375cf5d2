"""A fitted model as one file: parameters, data summary, ranges and flows as plain numbers, and back.

    FittedModel ↔ header (JSON) + arrays ↔ file

The structure of a flow is never read from the file. It follows from the data, the query and the ranges; the file only
gives the numbers, and arrays of any other shape raise an error.
"""

import os
from collections.abc import Collection
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ggmflow.data.scatter import Scatter
from ggmflow.flow.base import MatrixFlow, untrained_flow
from ggmflow.flow.serialize import arrays_of_flow, fill_flow
from ggmflow.model.conditions import Choice, Ranges, boundaries_from_json
from ggmflow.storage import archive
from ggmflow.train.report import reports_from_array
from ggmflow.train.status import Status

_SIZES_OF_0_1 = (32, 2)  # `MatrixFlow.shipped_sizes`, which files of version 0.1 do not state


class FittedModel(NamedTuple):
    """The results of a fit.

    Attributes
    ----------
    parameters
        Parameters of the estimator, by name.
    scatter
        The data as the model saw them.
    query : (s,) array of int
        Columns of the query, all of them without one.
    ranges
        Ranges that the flow was trained for.
    flow, snapshots
        The trained flow; for the published architecture also temperature → flow.
    history : (k, 5) array
        Training, a report in each row.
    status
        How training ended.
    chosen
        λ and q of highest evidence, if they have been found.
    has_feature_names
        Whether the columns came with names.
    """

    parameters: dict[str, Any]
    scatter: Scatter
    query: Int[np.ndarray, " s"]
    ranges: Ranges
    flow: MatrixFlow
    snapshots: dict[float, MatrixFlow]
    history: Float[np.ndarray, "k 5"]
    status: Status
    chosen: Choice | None
    has_feature_names: bool


def save(path: str | os.PathLike[str], model: FittedModel) -> None:
    """Write a model; an existing file is replaced only when the new one is complete.

    Parameters
    ----------
    path
        The file.
    model
        The results of a fit.
    """
    parameters = dict(model.parameters)
    for name in Ranges._fields:
        if isinstance(parameters[name], np.ndarray):
            parameters[name] = parameters[name].tolist()
    if not isinstance(parameters["random_state"], Integral | None):
        parameters["random_state"] = None  # the state of a generator has changed and would not reproduce this fit
    if not isinstance(parameters["query"], str | Integral | None):
        parameters["query"] = [entry if isinstance(entry, str) else int(entry) for entry in parameters["query"]]
    scatter_header, scatter_arrays = model.scatter.to_arrays()
    header = {
        "kind": "model",
        "architecture": model.flow.architecture,  # the parameter may have been changed since
        "pretrained": model.flow.has_shipped,
        "shipped_sizes": list(model.flow.shipped_sizes),
        "parameters": parameters,
        "scatter": scatter_header,
        "ranges": model.ranges._asdict(),
        "query": model.query.tolist(),
        "feature_names": model.has_feature_names,
        "status": model.status,
        "chosen": model.chosen,
        "snapshots": list(model.snapshots),
    }
    arrays = {"history": model.history}
    arrays |= {f"scatter/{name}": array for name, array in scatter_arrays.items()}
    for k, flow in enumerate([model.flow, *model.snapshots.values()]):
        arrays |= arrays_of_flow(flow, f"flow{k}/")
    archive.write(path, header, arrays)


def load(path: str | os.PathLike[str], parameter_names: Collection[str]) -> FittedModel:
    """Read a file that `save` wrote. Nothing in it is executed.

    Parameters
    ----------
    path
        The file.
    parameter_names
        Names of the estimator's parameters; the file must have exactly these.
    """
    header, arrays = archive.read(path)
    try:
        return _from_file(header, arrays, parameter_names)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise archive.ModelFileError(f"{path} is not a ggmflow model, or was changed: {error}") from None


def _from_file(header: dict[str, Any], arrays: dict[str, np.ndarray], names: Collection[str]) -> FittedModel:
    if header["kind"] != "model":
        raise ValueError(f"it holds a {header['kind']}")
    parameters: dict[str, Any] = {
        name: tuple(value) if name in Ranges._fields and isinstance(value, list) else value
        for name, value in header["parameters"].items()
    }
    shipped = header.get("pretrained", False)  # files of version 0.1 have no such weights
    sizes = [int(size) for size in header.get("shipped_sizes", _SIZES_OF_0_1)]
    parameters.setdefault("pretrained", shipped)
    parameters.setdefault("mean", "known")  # as it was before there was a choice
    if set(parameters) != set(names):
        raise ValueError(f"its parameters are {', '.join(sorted(parameters))}")
    prefix = "scatter/"
    stored = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
    scatter = Scatter.from_arrays(header["scatter"], stored)
    query = scatter.index(header["query"], strict=False)
    ranges = Ranges(**{name: (float(low), float(high)) for name, (low, high) in header["ranges"].items()})
    if not all(1e-40 < low <= high < 1e40 for low, high in ranges):
        raise ValueError("its ranges are invalid")

    def start(key: Any) -> MatrixFlow:
        options: dict[str, Any] = {"pretrained": bool(shipped), "sizes": sizes}
        return untrained_flow(key, header["architecture"], scatter, query, ranges, **options)

    flows = [fill_flow(start, arrays, f"flow{k}/") for k in range(1 + len(header["snapshots"]))]
    if not reports_from_array(arrays["history"]):
        raise ValueError("its history is empty")
    chosen = header["chosen"]
    if chosen is not None:
        lam, q, at_boundary = chosen
        chosen = Choice(float(lam), float(q), boundaries_from_json(at_boundary))
    return FittedModel(
        parameters=parameters,
        scatter=scatter,
        query=query,
        ranges=ranges,
        flow=flows[0],
        snapshots=dict(zip(map(float, header["snapshots"]), flows[1:], strict=True)),
        history=arrays["history"],
        status=Status(header["status"]),
        chosen=chosen,
        has_feature_names=bool(header["feature_names"]),
    )
