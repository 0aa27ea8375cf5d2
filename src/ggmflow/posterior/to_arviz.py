"""Draws for ArviZ: variables precision and association over (chain, draw, row, column), with names as coordinates."""

import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ggmflow.model.precision import free_entries
from ggmflow.posterior.weighted_draws import WeightedDraws
from ggmflow.storage.archive import versions


def inference_data(
    rows: Float[np.ndarray, "chains draws s d"],
    names: tuple[str, ...],
    query: Int[np.ndarray, " s"],
    attributes: Mapping[str, str | float | None],
) -> Any:
    """An InferenceData, or from ArviZ 1.0 on an xarray DataTree, with one group, "posterior".

    Parameters
    ----------
    rows
        Draws of Ω, chain by chain.
    names, query
        As in `Posterior`.
    attributes
        Stored beside the draws, except values that are None, which NetCDF does not have.
    """
    arviz = _import_arviz()
    import xarray  # comes with ArviZ

    dims, (num_chains, num_draws, *_) = ("chain", "draw", "row", "column"), rows.shape
    known = {name: value for name, value in attributes.items() if value is not None}
    known |= {f"{name}_version": version for name, version in versions().items() if name != "ggmflow"}
    draws = xarray.Dataset(
        {"precision": (dims, rows), "association": (dims, _associations(rows, names, query))},
        coords={
            "chain": np.arange(num_chains),
            "draw": np.arange(num_draws),
            "row": [names[k] for k in query],
            "column": list(names),
        },
        attrs={"inference_library": "ggmflow", "inference_library_version": versions()["ggmflow"], **known},
    )
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(posterior=draws)
    return xarray.DataTree.from_dict({"posterior": draws})


def _associations(
    rows: Float[np.ndarray, "chains draws s d"], names: tuple[str, ...], query: Int[np.ndarray, " s"]
) -> Float[np.ndarray, "chains draws s d"]:
    """The association of every pair in every draw, 1 for a variable and itself."""
    free = free_entries(query, len(names))
    entries = rows[..., free.row, free.column]
    draws = WeightedDraws(entries.reshape(-1, len(free.row)).T, names, query)
    association = draws.association_draws(slice(None))
    association[free.diagonal] = 1.0
    return draws.matrix(association.T.reshape(entries.shape))


def _import_arviz() -> ModuleType:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 on import
            import arviz
    except ImportError:
        raise ImportError("to_arviz needs ArviZ: pip install 'arviz<1' h5netcdf") from None
    return arviz
