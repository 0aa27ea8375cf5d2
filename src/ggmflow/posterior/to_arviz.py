"""Draws for ArviZ: variables precision and association over (chain, draw, row, column), with names as coordinates."""

import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float

from ggmflow.storage.archive import versions


def inference_data(
    variables: Mapping[str, Float[np.ndarray, "chains draws s d"]],
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    attributes: Mapping[str, str | float | None],
) -> Any:
    """An InferenceData, or from ArviZ 1.0 on an xarray DataTree, with one group, "posterior".

    Parameters
    ----------
    variables
        Arrays of shape (chains, draws, s, d) by name.
    rows, columns
        Names of the s query variables and of all d.
    attributes
        Kept beside the draws; None is left out, because NetCDF has no such value.
    """
    arviz = _import_arviz()
    import xarray  # comes with ArviZ

    dims, (num_chains, num_draws, *_) = ("chain", "draw", "row", "column"), next(iter(variables.values())).shape
    known = {name: value for name, value in attributes.items() if value is not None}
    known |= {f"{name}_version": version for name, version in versions().items() if name != "ggmflow"}
    draws = xarray.Dataset(
        {name: (dims, values) for name, values in variables.items()},
        coords={
            "chain": np.arange(num_chains),
            "draw": np.arange(num_draws),
            "row": list(rows),
            "column": list(columns),
        },
        attrs={"inference_library": "ggmflow", "inference_library_version": versions()["ggmflow"], **known},
    )
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(posterior=draws)
    return xarray.DataTree.from_dict({"posterior": draws})


def _import_arviz() -> ModuleType:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces 1.0 on import
            import arviz
    except ImportError:
        raise ImportError("to_arviz needs ArviZ: pip install 'arviz<1' h5netcdf") from None
    return arviz
