"""Python code that gives the numbers of a report again."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ggmflow.data.scatter import TREATMENTS
from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.report.content import Content


def python_code(model: GraphicalFlow, content: Content, data_name: str | None, reading: Mapping[str, Any]) -> str:
    """Return code that fits the model again and draws at the point that the page shows first.

    Parameters
    ----------
    model, content
        Fitted model, and content of its report.
    data_name, reading
        As in `write_report`.
    """
    defaults = GraphicalFlow().get_params(deep=False)
    given = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    given = {name: value for name, value in given.items() if name != "progress" and value != defaults[name]}
    given.pop("mean", None)  # a `Scatter` may have been given
    if (mean := "estimated" if model.scatter_.n_estimated else "known") != defaults["mean"]:
        given["mean"] = mean
    seeded = isinstance(given.get("random_state"), int)
    if not seeded:  # the state of a generator has changed since, and cannot be written as code
        given.pop("random_state", None)
    data = repr(data_name or "data.csv")
    if reading:  # all arguments about reading the file then belong to `Scatter.from_data`
        read_as = {name: given.pop(name) for name in TREATMENTS if name in given}
        data = f"gf.Scatter.from_data({data}, {_arguments(read_as | dict(reading))})"
    lam, q = float(content.lam[content.start[0]]), float(content.q[content.start[1]])
    temperature = "" if content.temperature == 1 else f"temperature={content.temperature!r}, "
    options = f"{temperature}num_draws={content.num_draws}, random_state=0"
    lines = [
        "import ggmflow as gf",
        f"model = gf.GraphicalFlow({_arguments(given)}).fit({data})",
        f"post = model.posterior(lam={lam!r}, q={q!r}, {options})",
        "post.select_edges()                                  # the edges",
        "post.association(), post.association_interval(0.9)   # their strengths and intervals",
    ]
    if not seeded:
        lines.insert(1, "# The fit had no seed (random_state): another one differs in the last digits.")
    return "\n".join(lines)


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_plain(value)!r}" for name, value in values.items())


def _plain(value: Any) -> Any:
    """The value as one whose `repr` is code: converts NumPy numbers and arrays, pandas columns and paths."""
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Path):
        return str(value)
    # Strings are iterable too; a random number generator is not.
    return value if isinstance(value, str) or not isinstance(value, Iterable) else [_plain(each) for each in value]
