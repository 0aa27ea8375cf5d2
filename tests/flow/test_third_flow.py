"""An architecture that the package does not know is registered in one line, and everything of a fit works with it."""

import jax
import numpy as np
import pytest
from scipy import stats

import ggmflow as gf
from ggmflow.errors.advice import Surface, message_of
from ggmflow.flow.base import ARCHITECTURES, MatrixFlow, find_architecture, register
from tests.support.affine_flow import AffineFlow
from tests.support.models import TABLE
from tests.support.oracles import log_factor
from tests.support.wishart import log_wishart

OPTIONS = {"lam": 2.0, "q": 1.0, "temperature": 1.0, "random_state": 0, "progress": False}


@pytest.fixture(scope="module")
def registered():
    register(AffineFlow)
    yield
    del ARCHITECTURES[AffineFlow.architecture]


@pytest.fixture(scope="module")
def fitted(registered):
    return gf.GraphicalFlow(architecture="affine", steps=300, **OPTIONS).fit(TABLE[["a", "b"]])


@pytest.mark.slow
def test_it_learns(fitted):
    """The ELBO rises from −25.7 after the first chunk to −23.5; at (2, 1) it comes close to log Z.

    Wishart proposals give log Z to 0.01 nats, and 4000 draws the ELBO: five standard errors are 0.05.
    """
    elbo = fitted.history_["elbo"]
    assert isinstance(fitted.flow_, AffineFlow) and fitted.flow_.architecture == "affine"
    assert elbo.iloc[-1] > elbo.iloc[0] + 2
    assert fitted.status_ == "finished" and fitted.history_["skipped"].iloc[-1] == 0
    scatter, lam = fitted.scatter_, 2.0
    Psi = scatter.matrix + lam * np.eye(2)
    matrices = stats.wishart(df=scatter.n + 3, scale=np.linalg.inv(Psi), seed=0).rvs(100_000)
    log_Z = log_wishart(scatter.n, Psi) + np.log(np.mean(np.exp(log_factor(matrices, lam, 1.0, 2))))
    assert log_Z - 0.5 < fitted.posterior(lam, 1.0).diagnostics()["elbo"] < log_Z + 0.05


def test_its_posterior_has_positive_definite_draws_and_reliable_weights(fitted):
    post = fitted.posterior(2.0, 1.0)
    draws = post.sample(500, random_state=1)
    assert draws.shape == (500, 2, 2) and np.linalg.eigvalsh(draws).min() > 0
    assert post.diagnostics()["khat"] < 0.7


def test_its_density_is_that_of_its_draws_and_is_normalized(fitted):
    """∫ q dΩ = 1 by 20 000 draws from a Wishart distribution with the same mean, to five standard errors."""
    source = fitted.posterior(2.0, 1.0).source
    draws = source.sample(jax.random.key(1), 400)
    np.testing.assert_allclose(source.log_prob(draws.precision), draws.log_prob, atol=1e-3)
    mean = np.mean(draws.precision, axis=0)
    proposal = stats.wishart(df=15, scale=mean / 15, seed=0)
    matrices = proposal.rvs(20_000)
    weights = np.exp(source.log_prob(matrices) - proposal.logpdf(np.moveaxis(matrices, 0, 2)))
    error = weights.std() / np.sqrt(len(weights))
    assert error < 0.02
    assert abs(weights.mean() - 1) < 5 * error


def test_its_model_file_is_read_while_it_is_registered(fitted, tmp_path):
    fitted.save(tmp_path / "affine.ggmflow")
    again = gf.GraphicalFlow.load(tmp_path / "affine.ggmflow")
    ours, theirs = (model.posterior(2.0, 1.0).sample(50, random_state=3) for model in (fitted, again))
    np.testing.assert_array_equal(ours, theirs)


def test_registered_names_are_the_choices(registered):
    assert {"structured", "paper", "affine"} <= set(ARCHITECTURES)
    choices = ", ".join(ARCHITECTURES)
    with pytest.raises(ValueError, match=f"unknown architecture 'cubic': choose one of {choices}") as caught:
        find_architecture("cubic")
    # The command line has no option for it: a model file may hold the name.
    assert message_of(caught.value, Surface.COMMAND_LINE) == str(caught.value)
    assert (caught.value.argument, caught.value.value) == ("architecture", "cubic")


def test_the_interface_alone_cannot_be_built():
    with pytest.raises(TypeError, match="abstract"):
        MatrixFlow()
