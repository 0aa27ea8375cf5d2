"""Export of a posterior at one condition as GraphML, CSV, JSON or NetCDF. A file is replaced only when complete."""

import csv
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from ggmflow.errors.argument import UnknownChoiceError
from ggmflow.posterior import tables
from ggmflow.posterior.edge_rules import DEFAULT, own_parameters
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.posterior import Posterior
from ggmflow.storage.archive import versions
from ggmflow.storage.json_values import plain
from ggmflow.storage.replace import replacing, write_text
from ggmflow.views.formats import EXPORTS

SCHEMA = "ggmflow-posterior/1"
_ASSOCIATION = [
    "association",
    "association_lower",
    "association_upper",
    "scale",
    "edge",
    "edge_probability",
    "p_positive",
]
_FIRST = ["row", "column", *_ASSOCIATION, "rule_probability", "mean", "sd", "median", "lower", "upper"]
_BLOCK = 2**16
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def export_table(post: Posterior, level: float = 0.9, rule: str | EdgeSelection = DEFAULT) -> pd.DataFrame:
    """`Posterior.summary` with the scale of each association, and the condition in every row.

    Parameters
    ----------
    post
        The posterior.
    level
        Probability of the credible intervals.
    rule
        Edge rule of `Posterior.select_edges`, or its result.

    Returns
    -------
    DataFrame
        Columns row, column, association, association_lower, association_upper, scale (a value of
        `tables.Scale`; missing, as they are, for a diagonal entry), edge, edge_probability (that |association| >
        0.1), p_positive, rule_probability (of an edge by the rule; missing if it has none), mean, sd, median, lower,
        upper (of ω_ij), lam, q, temperature, level, rule. `attrs` as in `summary`.
    """
    if isinstance(rule, EdgeSelection):
        chosen = rule
    else:
        chosen = post.select_edges(rule, **own_parameters(rule, level=level))
    table = tables.entry_table(post.draws, chosen, post.diagnostics(), _FIRST, level=level)
    condition = {"lam": post.lam, "q": post.q, "temperature": post.temperature, "level": float(level)}
    for name, value in (condition | {"rule": table.attrs["rule"]}).items():
        table[name] = value
    return table


def strongest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of an `export_table`, strongest first."""
    strength = np.abs(table["association"].to_numpy())
    order = np.argsort(-strength, kind="stable")[: np.count_nonzero(strength >= 0)]  # the diagonal is NaN, and last
    return table.take(order).reset_index(drop=True)


def edge_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the edges of an `export_table`, strongest first."""
    return strongest(table.take(np.flatnonzero(table["edge"])))


def describe(post: Posterior, table: pd.DataFrame) -> dict[str, Any]:
    """Return the description of a posterior in JSON, without its entries; every value has a type of JSON.

    Parameters
    ----------
    post
        The posterior.
    table
        Its `export_table`.
    """
    names = ("level", "threshold", "rule", "expected_fdr")
    return plain(
        {
            "schema": SCHEMA,
            "versions": versions(),
            "condition": {"lam": post.lam, "q": post.q, "temperature": post.temperature},
            "variables": list(post.names),
            "query": [post.names[k] for k in post.query],
            **{name: table.attrs[name] for name in names},
            "n_edges": int(np.count_nonzero(table["edge"])),
            "diagnostics": dict(post.diagnostics()),
        }
    )


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of an `export_table` without the columns that are equal in all rows."""
    shared = ["lam", "q", "temperature", "level", "rule"]
    return plain(table.drop(columns=shared).to_dict(orient="records"))


def csv_text(table: pd.DataFrame) -> str:
    """Return a table with names as CSV, such that reading it gives every name unchanged."""
    # pandas quotes values with a comma, a quote or a line feed, but not those with a carriage return.
    odd = any("\r" in text for column in ("row", "column") for text in table[column])
    return table.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL)


def graphml(post: Posterior, level: float | None = 0.9, rule: str | EdgeSelection | None = DEFAULT) -> bytes:
    """Return the graph of the edges, with its condition, as the bytes of a GraphML file.

    Parameters
    ----------
    post
        The posterior.
    level, rule
        As in `Posterior.to_networkx`.
    """
    graph = post.to_networkx(level, rule)
    for name in graph:
        if _NOT_XML.search(name):
            raise ValueError(f"GraphML cannot hold the name {name!r}: rename the column, or export another format")
    condition = {"lam": post.lam, "q": post.q, "temperature": post.temperature}
    graph.graph.update({name: value for name, value in condition.items() if value is not None})
    file = io.BytesIO()
    nx.write_graphml(graph, file)
    return file.getvalue()


def _write_graphml(post: Posterior, path: str | os.PathLike[str], level: float, rule: str) -> None:
    content = graphml(post, level, rule)
    with replacing(path) as temporary:
        Path(temporary).write_bytes(content)


def _write_csv(post: Posterior, path: str | os.PathLike[str], level: float, rule: str) -> None:
    write_text(path, csv_text(export_table(post, level, rule)))


def _write_json(post: Posterior, path: str | os.PathLike[str], level: float, rule: str) -> None:
    table = export_table(post, level, rule)
    content = describe(post, table) | {"entries": records(table)}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _write_netcdf(post: Posterior, path: str | os.PathLike[str], level: float, rule: str) -> None:
    data = post.to_arviz()
    with replacing(path) as temporary:
        # HDF5 aborts the process if the disk is full: reserve more space than compressed draws need.
        with open(temporary, "wb") as file:
            for _ in range(data["posterior"].nbytes // _BLOCK + 1):
                file.write(bytes(_BLOCK))
            file.flush()
            os.fsync(file.fileno())
        data.to_netcdf(temporary)


# Format → default name of the file, and the function that writes it.
FORMATS: dict[str, tuple[str, Callable[[Posterior, str | os.PathLike[str], float, str], None]]] = {
    "graphml": (EXPORTS["graphml"], _write_graphml),
    "csv": (EXPORTS["csv"], _write_csv),
    "json": (EXPORTS["json"], _write_json),
    "netcdf": (EXPORTS["netcdf"], _write_netcdf),
}


def export(
    post: Posterior, path: str | os.PathLike[str], format: str, *, level: float = 0.9, rule: str = DEFAULT
) -> None:
    """Write a posterior to a file.

    Parameters
    ----------
    post
        The posterior.
    path
        File to write; an existing file is replaced only when the new one is complete.
    format : {"graphml", "csv", "json", "netcdf"}
        The graph of the edges; every entry as a row, with the condition; the same with diagnostics, for programs; draws
        for ArviZ. Names are not changed. A spreadsheet may interpret a name that begins with =, +, - or @ as a formula:
        import a table as text if its names come from a source that you do not trust.
    level
        Probability of the credible intervals.
    rule
        Edge rule, as in `Posterior.select_edges`.

    Examples
    --------
    >>> export(post, "graph.graphml", "graphml")  # doctest: +SKIP
    """
    if not isinstance(format, str) or format not in FORMATS:
        raise UnknownChoiceError("format", format, tuple(FORMATS))
    FORMATS[format][1](post, path, level, rule)
