"""Learning rates, conditions [log λ, q, log T] of every step, and temperatures of the published cooling.

    η_i = η₀ (0.01 + 0.99 (1 + cos πi/N)/2),      T_i = T₀ (T_n/T₀)^{i/n}

Conditions are stratified over the ranges, and most have the highest or the lowest temperature.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def learning_rate(initial: float, step: Int[Array, ""], steps: Float[Array, ""]) -> Float[Array, ""]:
    """η_i of step i of N.

    `optax.cosine_decay_schedule` is the same but for rounding. It needs N as a constant, so that every length of
    training would be compiled separately. Given i/N it rounds differently, and because the first steps of Adam amplify
    rounding, fits would not reproduce those of earlier versions.
    """
    return initial * (0.01 + 0.495 * (1 + jnp.cos(jnp.pi * step.astype(jnp.float32) / steps)))


def draw_conditions(
    rng: np.random.Generator,
    num: int,
    low: Float[np.ndarray, " 3"],
    high: Float[np.ndarray, " 3"],
    log_temperature: float | None = None,
) -> Float[np.ndarray, "c 3"]:
    """Random [log λ, q, log T]: one in each of `num` equal strata of log λ and of q, in random pairs.

    Half of the temperatures are the highest, where the posterior is, an eighth the lowest; the others uniform in log T.
    A given `log_temperature` is that of all conditions.
    """
    order = rng.permuted(np.tile(np.arange(num), (3, 1)), axis=1).T
    unit = (order + rng.random((num, 3))) / num
    unit[:, 2] = _favour_ends(unit[:, 2])
    return _scale(unit, low, high, log_temperature)


def condition_grid(
    num: int, low: Float[np.ndarray, " 3"], high: Float[np.ndarray, " 3"], log_temperature: float | None = None
) -> Float[np.ndarray, "c 3"]:
    """`num` fixed, evenly spread [log λ, q, log T], with temperatures distributed as in training."""
    # Multiples of the powers of 1/ρ, ρ³ = ρ + 1, modulo 1, fill the cube evenly.
    root = 1.3247179572447460
    unit = (0.5 + np.arange(1, num + 1)[:, None] / root ** np.arange(1, 4)) % 1
    unit[:, 2] = _favour_ends(unit[:, 2])
    return _scale(unit, low, high, log_temperature)


def _scale(
    unit: Float[np.ndarray, "c 3"], low: np.ndarray, high: np.ndarray, log_temperature: float | None
) -> Float[np.ndarray, "c 3"]:
    conditions = np.asarray(low) + unit * (np.asarray(high) - np.asarray(low))
    if log_temperature is not None:
        conditions[:, 2] = log_temperature
    return conditions.astype(np.float32)


def _favour_ends(unit: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
    """Numbers uniform in [0, 1] to numbers that are 1 in half of all cases, 0 in an eighth, and uniform otherwise."""
    return ((8 * unit - 1) / 3).clip(0.0, 1.0)


def cooled_temperature(
    cooling: tuple[float, float, int] | None, chunk: int, num_chunks: int, exact: tuple[float, ...] = ()
) -> float | None:
    """The temperature of a chunk, constant within a stage; None without cooling.

    Parameters
    ----------
    cooling
        T₀, T_n and the number of stages.
    chunk, num_chunks
        Position in training.
    exact
        Temperatures that replace those of the nearest stages.
    """
    if cooling is None:
        return None
    start, end, stages = cooling
    stages = min(stages, num_chunks - 1) or 1
    stage = min(chunk * (stages + 1) // num_chunks, stages)
    for wanted in exact:
        if start != end and stage == round(stages * float(np.log(wanted / start) / np.log(end / start))):
            return wanted
    return float(start * (end / start) ** (stage / stages))


def is_reached(temperature: float, last: float | None) -> bool:
    """Whether the cooling, which was at `last` in the last chunk, has come down to a temperature."""
    return last is not None and last <= temperature * (1 + 1e-6)
