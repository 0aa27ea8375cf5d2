"""The posterior averaged over λ and q."""

import numpy as np
import pytest

from ggmflow.evidence.search import midpoints


@pytest.mark.slow
def test_average_is_the_mixture(model, untrained):
    """Its mean is that of the posteriors on the grid, weighted by evidence; within 5 standard errors, 1e-5 in all."""
    full = model("full")
    averaged = full.posterior(average=True, num_draws=8000)
    lams, qs = np.exp(midpoints(*np.log(full.lam_range_), 12)), midpoints(*full.q_range_, 6)
    table = full.evidence(lam=lams, q=qs, num_draws=1000)
    share = np.exp(table["log_evidence"] - table["log_evidence"].max())
    means = np.stack([full.posterior(row.lam, row.q, num_draws=1000).mean() for row in table.itertuples()])
    expected = np.tensordot(share / share.sum(), means, 1)
    error = averaged.sd() * np.sqrt(2 / (8000 * averaged.diagnostics()["ess"]))
    assert np.all(np.abs(averaged.mean() - expected) < 5 * error + 0.01)
    assert averaged.weighted and averaged.diagnostics()["khat"] < 0.7
    rows = averaged.sample(3, random_state=0)
    assert np.all(np.isfinite(averaged.log_prob(rows)))
    assert full.posterior(q=0.5, average=True, num_draws=500).mean().shape == (4, 4)
