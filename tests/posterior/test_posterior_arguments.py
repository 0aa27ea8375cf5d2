"""Random states, arguments and display of a posterior."""

import html
import re
import warnings

import numpy as np
import pytest

from ggmflow.errors.advice import Surface, message_of
from ggmflow.errors.argument import ArgumentError
from ggmflow.posterior.diagnostics import PoorFitWarning
from ggmflow.posterior.posterior import Posterior
from tests.support.wishart import LAM, S3, S4, N, Q, WishartSource, posterior


def test_random_state_decides_everything():
    source = WishartSource(S3, N, LAM, Q)
    first, second = posterior(source), posterior(source)
    np.testing.assert_array_equal(first.mean(), second.mean())
    assert not np.array_equal(first.mean(), posterior(source, random_state=1).mean())
    for weighted in (False, True):
        draws = [first.sample(20, random_state=seed, weighted=weighted) for seed in (5, 5, 6)]
        np.testing.assert_array_equal(draws[0], draws[1])
        assert not np.array_equal(draws[0], draws[2])
    for make in (np.random.default_rng, np.random.RandomState):
        state, same = make(3), make(3)
        np.testing.assert_array_equal(first.sample(4, state), first.sample(4, same))
        assert not np.array_equal(first.sample(4, state), first.sample(4, make(3)))  # the state moved on
    assert not np.array_equal(first.sample(4), first.sample(4))


def test_draws_are_made_once_and_not_by_showing_the_object():
    source = WishartSource(S3, N, LAM, Q)
    post = posterior(source, num_draws=300)
    repr(post), post._repr_html_()
    assert source.calls == []
    post.mean(), post.interval(), post.summary(), post.diagnostics(), repr(post)
    assert source.calls == [300]


def test_large_requests_come_in_chunks_of_one_size(monkeypatch):
    monkeypatch.setattr("ggmflow.posterior.source._CHUNK", 9 * 40)
    source = WishartSource(S3, N, LAM, Q)
    draws = posterior(source).sample(100, random_state=0)
    assert draws.shape == (100, 3, 3) and source.calls == [34, 34, 34]
    assert len(np.unique(draws[:, 0, 0])) == 100  # each chunk has a key of its own


def test_arrays_that_come_back_are_the_callers_own(full):
    mean = full.mean()
    mean[:] = 0
    assert np.all(np.diag(full.mean()) > 0)


def test_repr_is_short_and_html_is_escaped():
    post = posterior(WishartSource(S3, N, LAM, Q), names=("<b>", "x&y", "z"), num_draws=1000)
    assert repr(post) == "Posterior(3 variables (<b>, x&y, z) at λ = 2, q = 0.5, T = 1. 1000 draws at first use.)"
    assert "&lt;b&gt;, x&amp;y" in post._repr_html_() and "<b>," not in post._repr_html_()
    post.mean()
    assert "Good fit: Pareto k̂" in repr(post) and "use importance weights" in repr(post)
    some = Posterior(WishartSource(S4, N, LAM, query=[2]), tuple("abcd"), np.array([2]), None, None, None)
    assert repr(some).startswith("Posterior(the Markov blanket of 1 among 4 variables (c). 4000 draws")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda post: post.interval(90), "level must be a number between 0 and 1"),
        (lambda post: post.edges(level=0), "level"),
        (lambda post: post.summary(level="0.9"), "level"),
        (lambda post: post.to_networkx(level=1.0), "level"),
        (lambda post: post.edges(rule="best"), "unknown rule 'best'"),
        (lambda post: post.edges(level=0.9, rule="fdr"), "'fdr' takes rate, but level was given"),
        (lambda post: post.select_edges("f1", cut=0.5), "'f1' takes no numbers"),
        (lambda post: post.select_edges("fdr", rate=10), "rate must be a number between 0 and 1"),
        (lambda post: post.summary(rule="best"), "unknown rule"),
        (lambda post: post.summary(rule=post.edges()), "unknown rule of type ndarray"),
        (lambda post: post.summary(rule=post.select_edges()._replace(edges=np.eye(4) > 0)), r"shape \(4, 4\), not"),
        (lambda post: post.quantile(1.5), "probs"),
        (lambda post: post.quantile([0.1, np.nan]), "probs"),
        (lambda post: post.quantile([[0.1]]), "probs"),
        (lambda post: post.quantile("half"), "probs"),
        (lambda post: post.quantile([[0.1], [0.1, 0.2]]), "probs"),
        (lambda post: post.log_prob([[1.0], [1.0, 2.0]]), "precision must be an array of real numbers"),
        (lambda post: post.sample(10**30), "num_draws must be a whole number from 1 to"),
        (lambda post: post.sample(5, random_state=-1), "random_state must be a whole number, zero or more.*got -1"),
        (lambda post: post.sample(5, random_state="a"), "random_state"),
        (lambda post: post.edge_probability(-0.1), "threshold"),
        (lambda post: post.summary(threshold=np.nan), "threshold"),
        (lambda post: post.sample(0), "num_draws"),
        (lambda post: post.sample(2.5), "num_draws"),
        (lambda post: posterior(post.source, num_draws=0), "num_draws"),
        (lambda post: posterior(post.source, num_draws=True), "num_draws"),
        (lambda post: posterior(post.source, names=("a", "a", "b")), "names must differ"),
        (lambda post: Posterior(post.source, tuple("abc"), np.array([0, 0]), 1, 1, 1), "different positions"),
        (lambda post: Posterior(post.source, tuple("abc"), np.array([3]), 1, 1, 1), "from 0 to 2"),
        (lambda post: Posterior(post.source, tuple("abc"), np.array(["a"]), 1, 1, 1), "vector of column positions"),
        (lambda post: Posterior(post.source, tuple("abc"), np.array([], int), 1, 1, 1), "vector of column positions"),
    ],
)
def test_wrong_arguments_are_named(call, message, full):
    with pytest.raises(ValueError, match=message):
        call(full)


def test_command_line_names_wrong_arguments_as_options(full):
    with pytest.raises(ArgumentError) as caught:
        Posterior(full.source, tuple("abc"), np.array([0, 3]), 1, 1, 1)
    assert (
        message_of(caught.value, Surface.COMMAND_LINE) == "--query must hold different positions from 0 to 2, got 0,3"
    )
    with pytest.raises(ArgumentError) as caught:
        full.quantile([0.5, 2])
    # There is no option for it.
    message = "probs must be one or more probabilities from 0 to 1, got 0.5,2"
    assert message_of(caught.value, Surface.COMMAND_LINE) == message


def test_a_good_fit_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior(WishartSource(S3, N, LAM, Q), num_draws=200).summary()


def test_html_of_a_posterior_in_a_notebook():
    evil = "<script>alert(1)</script>"
    post = posterior(WishartSource(S3, N, LAM, Q), names=(evil, "$y$", "z"), num_draws=1000)
    shown = post._repr_html_()
    assert "<script" not in shown and "&lt;script&gt;alert(1)&lt;/script&gt;, $y$, z" in shown
    assert "Nothing is drawn yet" in shown and "Edges" not in shown and "λ = 2, q = 0.5, T = 1" in shown
    selection = post.select_edges()
    shown = html.unescape(post._repr_html_())
    assert f"{selection.n_edges} of 3 pairs ({selection.rule})" in shown and "● Good fit: Pareto k̂" in strip(shown)


def test_showing_a_poor_fit_leaves_the_warning_for_the_first_estimate(terrible):
    terrible.diagnostics()
    assert "● Poor fit" in strip(terrible._repr_html_())
    with pytest.warns(PoorFitWarning):
        terrible.mean()


def strip(text):
    return re.sub("<[^>]*>", "", text)
