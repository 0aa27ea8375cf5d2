"""The one-dimensional draws of a sweep: an entry off the diagonal, and the Schur complement γ.

    exp(−½(x − δ)² − κ|x|^q)          and          γ^{n/2} exp(−½aγ − ½b/γ)

All are Markov kernels that leave their distribution invariant, without a rejection loop. Entries come in units of their
conditional sd and in float32, which vectorizes well; the rounding error is far below the sd up to |x| of 1e4.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri


def draw_entry(x, delta, log_kappa, q, exponential, uniforms):
    """Leave exp(−½(x − δ)² − κ|x|^q) invariant: an independence step, then a slice step.

    The slice step mixes well near the cusp at 0. Away from it its box is narrow relative to the sd, the more so the
    lower the temperature; there the independence step, at the interior mode, mixes.

    Parameters
    ----------
    x, delta, log_kappa, q, exponential : float32
        The current entry, its Gaussian mean, its penalty, and a standard exponential variable.
    uniforms : four of them, float32 in (0, 1)
    """
    propose, accept_mode, uniform, accept_edge = uniforms
    sign = jnp.where(delta < 0, -1.0, 1.0).astype(delta.dtype)  # reflect so that δ ≥ 0
    x, delta = sign * x, sign * delta
    x = _draw_at_mode(x, delta, log_kappa, q, propose, accept_mode)
    # An exponential variable e turns exp(−κ|x|^q) into the box |x|^q < |x_old|^q + e/κ.
    log_box = jnp.logaddexp(q * jnp.log(jnp.abs(x)), jnp.log(exponential) - log_kappa) / q
    return sign * draw_in_box(x, delta, jnp.exp(log_box), uniform, accept_edge)


def _draw_at_mode(x, delta, log_kappa, q, uniform, accept):
    """Metropolis step with a normal proposal at the interior mode, which is found without use of x.

    The mode solves t + κq t^{q−1} = δ, by Newton's method from δ: exact after one step at q = 1 and q = 2. The
    curvature there is 1 + κq(q−1)t^{q−2}. At q = 1 and q = 2, if there is a mode, the proposal is the target
    on its side of 0.
    """
    slope = q * jnp.exp(log_kappa)
    mode = jnp.maximum(delta, 1e-3)
    for _ in range(3):
        pull = slope * jnp.exp((q - 1) * jnp.log(mode))
        curvature = jnp.maximum(1 + (q - 1) * pull / mode, 0.25)
        # Where there is no mode, this bound lets `mode` shrink towards the cusp.
        mode = jnp.maximum(mode - (mode + pull - delta) / curvature, 0.1 * mode)
    curvature = 1 + slope * (q - 1) * jnp.exp((q - 2) * jnp.log(mode))
    width = jax.lax.rsqrt(jnp.clip(curvature, 0.25, 1e12))
    new = mode + width * ndtri(uniform)

    def log_weight(t):  # target over proposal
        penalty = jnp.exp(log_kappa + q * jnp.log(jnp.abs(t)))
        return -0.5 * (t - delta) ** 2 - penalty + 0.5 * ((t - mode) / width) ** 2

    return jnp.where(jnp.log(accept) < log_weight(new) - log_weight(x), new, x)


def draw_in_box(x, delta, box, uniform, accept):
    """One draw of N(δ, 1) on |x| < box, δ ≥ 0, leaving that distribution invariant from the current x.

    The normal cdf is inverted where that is accurate. In a box that is too narrow or too far out, an exponential
    matched at the box's nearer end is proposed and corrected by a Metropolis step.
    """
    rate = delta - box
    low, high = _ndtr(-box - delta), _ndtr(-rate)  # δ ≥ 0 puts the box to the left, where erfc is accurate
    # The quantiles of 0 and 1 are infinite.
    inverted = delta + ndtri(jnp.clip(low + uniform * (high - low), 1e-30, 1 - 2**-24))
    # y = box − x has density ∝ exp(−r y − ½y²) on [0, 2·box] with r = δ − box; propose without the square.
    width = jnp.minimum(2 * box, 1e3)
    flat = jnp.abs(rate * width) < 1e-4
    safe = jnp.where(flat, 1.0, rate)
    y = jnp.where(flat, uniform * width, -jnp.log1p(uniform * jnp.expm1(-jnp.clip(safe * width, -80, 80))) / safe)
    y_old = box - x
    y = jnp.where(jnp.log(accept) < 0.5 * (y_old**2 - y**2), y, y_old)
    return jnp.clip(jnp.where((rate > 5) | (box < 0.1), box - y, inverted), -box, box)


def _ndtr(x):
    return 0.5 * jax.lax.erfc(-x * np.float32(np.sqrt(0.5)))


def schur_shape(n_samples):
    """Shape n/2 + 1 of γ: n/2 from det(Ω)^{n/2}, and 1 because dω_jj = dγ has no power of γ."""
    return n_samples / 2 + 1


def draw_schur(uniforms, gamma, n_samples, a, b):
    """Leave γ^{n/2} exp(−½aγ − ½b/γ) invariant: an independence Metropolis step with bounded weights.

    In x = log γ − mode the log density is f(x) = −½A(eˣ−1−x) − ½B(e⁻ˣ−1+x), concave, so the two tangents where
    it has fallen by about 1 and the constant 0 between them bound it: uniform centre, exponential tails.
    """
    p = schur_shape(n_samples)
    mode = jnp.log((p + jnp.sqrt(p**2 + a * b)) / a)
    A, B = a * jnp.exp(mode), b * jnp.exp(-mode)

    def f(x):
        return -0.5 * A * (jnp.expm1(x) - x) - 0.5 * B * (jnp.expm1(-x) + x)

    def slope(x):
        return -0.5 * A * jnp.expm1(x) + 0.5 * B * jnp.expm1(-x)

    touch = jnp.sqrt(4 / (A + B))
    slope_right, slope_left = -slope(touch), slope(-touch)
    right, left = touch + f(touch) / slope_right, touch + f(-touch) / slope_left  # where the tangents meet 0
    mass = jnp.stack([1 / slope_left, left + right, 1 / slope_right])

    def log_envelope(x):
        return jnp.minimum(0.0, jnp.minimum(-slope_right * (x - right), slope_left * (x + left)))

    u, tail, accept = uniforms
    place, excess = u * jnp.sum(mass, axis=0), -jnp.log1p(-tail)
    new = jnp.where(
        place < mass[0],
        -left - excess / slope_left,
        jnp.where(place < mass[0] + mass[1], -left + (place - mass[0]), right + excess / slope_right),
    )
    old = jnp.log(gamma) - mode
    log_ratio = f(new) - log_envelope(new) - f(old) + log_envelope(old)
    return jnp.where(jnp.log(accept) < log_ratio, jnp.exp(mode + new), gamma)
