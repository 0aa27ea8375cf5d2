"""Evidence against brute force and closed forms."""

from functools import cache, partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.support.models import TABLE, quick
from tests.support.oracles import log_factor
from tests.support.wishart import log_wishart

LAMS, QS = [0.5, 3.0], [0.25, 1.0]  # beyond these conditions brute force needs more than 10⁷ draws


@cache  # tests share conditions, each of which takes seconds
def exact_log_evidence(model, lam, q, num_draws=600_000):
    """Wishart draws before and after the data, with weights exp(−λΣ|ω|^q) ≤ 1; the error of the result."""
    order, s = np.r_[model.query_, np.setdiff1d(np.arange(4), model.query_)], len(model.query_)
    S, n = model.scatter_.matrix[np.ix_(order, order)], model.scatter_.n
    parts, variances = [], []
    for seed, (rows, Psi) in enumerate([(n, S + lam * np.eye(4)), (0, lam * np.eye(4))]):
        wishart = stats.wishart(df=rows + 5, scale=np.linalg.inv(Psi))
        factor = np.exp(log_factor(wishart.rvs(num_draws, random_state=np.random.default_rng(seed)), lam, q, s))
        parts.append(log_wishart(rows, Psi) + np.log(factor.mean()))
        variances.append(np.var(factor) / factor.mean() ** 2 / num_draws)
    return parts[0] - parts[1] - 0.5 * n * 4 * np.log(2 * np.pi), np.sqrt(sum(variances))


@pytest.mark.parametrize(
    ("kind", "lams", "qs"),
    [
        ("full", LAMS[:1], QS[:1]),
        pytest.param("full", LAMS, QS, marks=pytest.mark.slow),
        pytest.param("blanket", LAMS, QS, marks=pytest.mark.slow),
    ],
    ids=["full, one condition", "full", "blanket"],
)
def test_evidence_is_exact(model, kind, lams, qs):
    """Up to four conditions within 0.05 nats and five standard errors: false alarms 6e-7 each, 6e-6 in all."""
    table = model(kind).evidence(lam=lams, q=qs)
    assert list(table.columns) == ["lam", "q", "log_evidence", "se", "elbo", "ess", "khat", "method"]
    assert table["lam"].tolist() == np.repeat(lams, len(qs)).tolist() and table["q"].tolist() == qs * len(lams)
    assert set(table["method"]) == {"importance"}
    for row in table.itertuples():
        exact, se = exact_log_evidence(model(kind), row.lam, row.q)
        assert se < 0.03
        assert abs(row.log_evidence - exact) < min(0.05, 5 * np.hypot(se, row.se) + 1e-3), (row.lam, row.q)
        assert 0 < row.se < 0.03


@pytest.mark.slow
def test_the_normalizer_on_the_cone_changes_the_comparison_of_q(model):
    """Without the cone, the paper's constants compare q wrongly: by more than a nat between q = 1 and 0.25 here."""
    full = model("full")
    difference = {
        normalizer: np.diff(full.evidence(lam=0.5, q=[1.0, 0.25], normalizer=normalizer)["log_evidence"])[0]
        for normalizer in ("cone", "published")
    }
    exact = exact_log_evidence(full, 0.5, 0.25)[0] - exact_log_evidence(full, 0.5, 1.0)[0]
    assert abs(difference["cone"] - exact) < 0.05
    assert abs(difference["published"] - exact) > 1


def test_published_constants(model):
    """The ELBO plus Σ_{i<j} log(q λ^{1/q}/(2Γ(1/q))); at q = 1 that is 6 log(λ/2)."""
    (row,) = model("full").evidence(lam=3.0, q=1.0, normalizer="published").itertuples()
    assert row.log_evidence == pytest.approx(row.elbo + 6 * np.log(1.5))
    assert row.method == "published"


def test_default_grid(model, untrained):
    table = model("blanket").evidence(num_draws=500, exact=False)
    assert isinstance(table, pd.DataFrame) and len(table) == 45
    assert np.all(np.isfinite(table["log_evidence"]))


def test_wrong_arguments_raise(model, untrained):
    full = model("full")
    with pytest.raises(ValueError, match="normalizer must be"):
        full.evidence(normalizer="none")
    for ask in (lambda: full.evidence(lam=100.0), lambda: full.select(lam=100.0), lambda: full.select(100.0, 1.0)):
        with pytest.raises(ValueError, match="lam=100 is outside the fitted range"):
            ask()
    for temperature in (0.5, np.ones(2), "1"):
        with pytest.raises(ValueError, match="temperature must be 1"):
            full.posterior(average=True, temperature=temperature)
    for name, wrong in product(("lam", "q"), ("x", [], [[1.0], [1.0, 2.0]], np.ones((2, 2)))):
        for ask in (full.evidence, partial(full.posterior, average=True)):
            with pytest.raises(ValueError, match=f"{name} must be a number"):
                ask(**{name: wrong})
    with pytest.raises(ValueError, match="num_draws"):
        full.evidence(2.0, 1.0, num_draws=0)
    cold = quick(temperature=(0.01, 0.1)).fit(TABLE)
    for ask in (
        cold.evidence,
        cold.select,
        lambda: cold.posterior(average=True),
        lambda: cold.posterior(temperature=0.05),
    ):
        with pytest.raises(ValueError, match="temperatures that include 1"):
            ask()
    assert isinstance(cold.posterior(2.0, 1.0, 0.05, num_draws=100).sample(2), np.ndarray)
