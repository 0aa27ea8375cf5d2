"""Quantiles of a sampler for every free entry, and the error of other methods' quantiles.

    error = mean over entries and levels of |quantile − the sampler's| / the sampler's standard deviation

Free entries of (s, d) rows whose first columns are the query are those on and above the diagonal.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

LEVELS = (0.05, 0.5, 0.95)
LIMIT = 0.1  # sd: where quantiles of the flow are further off than this, refined draws are used


class Reference(NamedTuple):
    """Answers of a sampler.

    Attributes
    ----------
    mean : (s, d) array
    quantiles : (3, D) array
        At `LEVELS`, of the free entries.
    sd : (D,) array
    own_error : float
        Error of the sampler's own quantiles: half the difference between two halves of its chains, which varies as the
        mean of all does.
    """

    mean: Float[np.ndarray, "s d"]
    quantiles: Float[np.ndarray, "3 D"]
    sd: Float[np.ndarray, " D"]
    own_error: float


def refer(draws: Float[np.ndarray, "chains draws s d"]) -> Reference:
    """Quantiles of draws, chain by chain, and their error."""
    entries = draws[:, :, *free(draws)]
    one, other, all_of_them = (
        np.quantile(some.reshape(-1, some.shape[-1]), LEVELS, axis=0) for some in (entries[::2], entries[1::2], entries)
    )
    sd = entries.std(axis=(0, 1))
    return Reference(draws.mean(axis=(0, 1)), all_of_them, sd, float(np.mean(np.abs(one - other) / sd)) / 2)


def free(rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Positions of the free entries of (…, s, d) rows."""
    return np.triu_indices(rows.shape[-2], m=rows.shape[-1])


class Error(NamedTuple):
    """Quantile errors, in standard deviations: mean over all entries, largest, and index of the worst."""

    mean: float
    largest: float
    worst: int


def quantile_error(quantiles: Float[np.ndarray, "3 s d"], reference: Reference) -> Error:
    """Error of quantiles at `LEVELS` against those of a sampler."""
    return error_of_entries(quantiles[:, *free(quantiles)], reference)


def error_of_entries(quantiles: Float[np.ndarray, "3 D"], reference: Reference) -> Error:
    """Error of the quantiles of free entries."""
    error = np.mean(np.abs(quantiles - reference.quantiles) / reference.sd, axis=0)
    return Error(float(error.mean()), float(error.max()), int(error.argmax()))
