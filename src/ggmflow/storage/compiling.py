"""Compiler options for programs that take longer to compile than to run.

On two cores, the training step of a flow of 15 variables compiled in less than half the time and ran a fifth slower.
"""

from typing import Any

_QUICK: dict[str, int | bool] = {
    "xla_backend_optimization_level": 1,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
_SMALL = 500  # free entries of a flow, up to which this pays: of more than 30 variables running counts

# Options of `jax.jit`: of a program that is to run quickly, and of one that is to compile quickly.
COMPILER_OPTIONS: dict[bool, dict[str, Any]] = {False: {}, True: {"compiler_options": _QUICK}}


def compiles_quickly(n_entries: int, platform: str) -> bool:
    """Whether a short computation with a flow of so many free entries takes longer to compile than to run."""
    return n_entries <= _SMALL and platform == "cpu"
