"""Memory that training needs: a check before anything is built, and a clear error if memory runs out later."""

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral

import jax

from ggmflow.errors.advice import Advice
from ggmflow.errors.advised import AdvisedMemoryError
from ggmflow.flow.base import find_architecture, num_entries
from ggmflow.storage.memory import require
from ggmflow.train.chunk import conditions_at_once
from ggmflow.train.devices import training_devices
from ggmflow.train.settings import split_batch

_SMALLEST_DEFAULT = 32  # draws of a step


def require_memory(architecture: str, n_features: int, n_query: int, batch_size: int | None = None) -> None:
    """Raise if a flow and its training cannot fit into memory.

    Parameters
    ----------
    architecture
        A registered name.
    n_features, n_query
        d and s.
    batch_size
        Draws of a step, if not the default.

    Raises
    ------
    MemoryError
    """
    if training_devices()[0].platform != "cpu":
        return  # accelerators have memory of their own, and report an error themselves
    d, s = n_features, n_query
    need = find_architecture(architecture).memory(d, s)
    num_conditions, num_draws = split_batch(int(batch_size) if isinstance(batch_size, Integral) else _SMALLEST_DEFAULT)
    if s < d and num_conditions > 0:
        num_conditions = conditions_at_once(num_conditions, d)
    step = max(0, num_conditions) * (need.per_draw * num_draws + need.per_condition) // jax.process_count()
    # Six of each weight: the weight, its average, the best so far, the gradient, its two moments. Numbers of 4 bytes.
    require(4 * (6 * need.weights + step), _training_of(d, s), _smaller_problem(d, s))


@contextmanager
def memory_errors(n_features: int, n_query: int) -> Iterator[None]:
    """Raise MemoryError, with the advice of `require_memory`, where JAX could not allocate memory.

    Parameters
    ----------
    n_features, n_query
        d and s of the flow that is built or trained in the block.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        # Older versions of JAX have the code only as the first word of the message.
        if not getattr(error, "error_code_string", str(error)).startswith("RESOURCE_EXHAUSTED"):
            raise
        what, advice = _training_of(n_features, n_query), _smaller_problem(n_features, n_query)
        raise AdvisedMemoryError(f"{what} need more memory than is available", advice) from error


def _training_of(d: int, s: int) -> str:
    return f"a flow over {num_entries(d, s)} entries and its training"


def _smaller_problem(d: int, s: int) -> Advice:
    """How to make the problem smaller."""
    fewer = "some variables" if s == d else "fewer variables"
    return Advice(f"leave columns out, or ask for the Markov blanket of {fewer} with", {"query": ...})
