"""Compiler options for programs that take longer to compile than to run.

On two cores, the training step of a flow of 15 variables compiled in less than half the time and ran a fifth slower.
"""

QUICK_TO_COMPILE: dict[str, int | bool] = {
    "xla_backend_optimization_level": 1,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
SMALL = 500  # free entries of a flow, up to which this holds: of more than 30 variables running counts
