"""How training ended; imported without JAX."""

from enum import StrEnum


class Status(StrEnum):
    """How training ended."""

    FINISHED = "finished"
    STOPPED_EARLY = "stopped early"
    INTERRUPTED = "interrupted"
    FAILED = "failed"  # no chunk ended with a finite ELBO
