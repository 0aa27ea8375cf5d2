"""The registry of edge rules: parameters are checked, and a rule that is added to it appears in every menu."""

import subprocess
import sys

import numpy as np
import pytest

from ggmflow.errors.advice import Surface, message_of
from ggmflow.errors.argument import ArgumentError
from ggmflow.posterior.edge_rules import EDGE_RULES, find_rule, menu_entries, own_parameters
from ggmflow.posterior.posterior import Posterior
from ggmflow.posterior.source import ChainSource


@pytest.mark.parametrize(
    ("rule", "given", "message"),
    [
        ("best", {}, "unknown rule 'best': choose one of f1, interval, fdr, probability"),
        (3, {}, "unknown rule of type int"),
        ("f1", {"level": 0.9}, "'f1' takes no numbers, but level was given"),
        ("interval", {"rate": 0.1}, "'interval' takes level, but rate was given"),
        ("probability", {"level": 0.1}, "takes threshold and cut, but level"),
        ("interval", {"level": 90}, "level must be a number between 0 and 1, got 90"),
        ("fdr", {"rate": True}, "rate must be a number between 0 and 1, got True"),
        ("fdr", {"rate": np.nan}, "rate must be"),
        ("probability", {"cut": 1.0}, "cut must be"),
        ("probability", {"threshold": -0.1}, "threshold must be a number zero or positive"),
        ("probability", {"threshold": "0.1"}, "threshold must be"),
    ],
)
def test_wrong_rules_and_numbers_are_named(rule, given, message):
    with pytest.raises(ValueError, match=message):
        find_rule(rule, **given)


@pytest.mark.parametrize(
    ("rule", "given", "message"),
    [
        ("best", {}, "unknown --rule 'best': choose one of f1, interval, fdr, probability"),
        ("f1", {"level": 0.9}, "--rule f1 takes no numbers, but level was given: it belongs to --rule interval"),
        ("interval", {"level": 90}, "--level must be a number between 0 and 1, got 90"),
    ],
)
def test_command_line_names_rules_and_numbers_as_options(rule, given, message):
    with pytest.raises(ArgumentError) as caught:
        find_rule(rule, **given)
    assert message_of(caught.value, Surface.COMMAND_LINE) == message


def test_numbers_have_defaults():
    assert find_rule("fdr", rate=None, level=None) == (EDGE_RULES["fdr"], {"rate": 0.1})
    assert find_rule(rate=0.2) == (EDGE_RULES["fdr"], {"rate": 0.2}) and find_rule() == find_rule("f1")
    assert find_rule(threshold=0) == (EDGE_RULES["probability"], {"threshold": 0.0, "cut": 0.5})
    assert find_rule("f1")[1] == {} and find_rule("interval")[1] == {"level": 0.9}


def test_parameters_that_other_rules_take_are_left_out():
    assert own_parameters("probability", level=0.8, threshold=0.2) == {"threshold": 0.2}
    assert own_parameters("f1", level=0.8) == {}
    with pytest.raises(ValueError, match="unknown rule 'best'"):
        own_parameters("best", level=0.8)


def test_menus_show_parameters_and_mark_the_default():
    labels = {key: entry.label for key, entry in menu_entries().items()}
    assert labels["f1"] == "Highest expected F1 (default)"
    assert [labels[f"interval level={level}"] for level in (0.8, 0.9, 0.95)] == [
        f"{percent} % interval excludes zero" for percent in (80, 90, 95)
    ]
    assert labels["fdr"] == "False discovery rate at most 10 %"
    assert EDGE_RULES["probability"].title() == "P(|association| > 0.1) above 50 %"


# A rule that chooses the pairs of largest |mean|, with a parameter of its own.
NEW_RULE = """
from ggmflow.posterior.edge_rules import EDGE_RULES, ChosenPairs, EdgeRule, Parameter

def largest(scored, size):
    mean = abs(scored.draws.mean()[scored.entries])
    return ChosenPairs(mean > size, None, f"|mean| > {size:g}")

size = {"size": Parameter(0.5, "smallest |mean|", bounded=False)}
EDGE_RULES["large"] = EdgeRule("large", "Mean above {size}", "the mean is large", largest, size)
"""


@pytest.fixture
def new_rule():
    exec(NEW_RULE, {})
    yield EDGE_RULES["large"]
    del EDGE_RULES["large"]


def test_a_new_rule_selects_edges(new_rule):
    Omega = np.array([[2.0, -0.8, 0.3], [-0.8, 2.0, 0.6], [0.3, 0.6, 2.0]])
    post = Posterior(ChainSource(np.tile(Omega, (50, 1, 1))), tuple("abc"), np.arange(3), 1.0, 1.0, 1.0, num_draws=50)
    found = post.select_edges("large")
    assert (found.key, found.parameters, found.rule, found.n_edges) == ("large", {"size": 0.5}, "|mean| > 0.5", 2)
    larger = (np.abs(Omega) > 0.7) & ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(post.edges(rule="large", size=0.7), larger)
    assert post.select_edges(size=0.2).n_edges == 3  # the parameter names the rule
    assert post.summary(rule="large")["edge"].sum() == post.to_networkx(rule="large").number_of_edges() == 2
    assert menu_entries()["large"].label == "Mean above 0.5" and new_rule.explain() == "the mean is large."


def test_explanations_contain_the_parameters():
    assert "its 80 % credible interval" in EDGE_RULES["interval"].explain({"level": 0.8})
    assert "at most 10 %" in EDGE_RULES["fdr"].explain() and EDGE_RULES["probability"].explain().endswith("above 0.5.")


@pytest.mark.parametrize("rule", EDGE_RULES)
def test_rules_say_whether_they_have_probabilities(rule):
    Omega = np.array([[2.0, -0.8, 0.3], [-0.8, 2.0, 0.6], [0.3, 0.6, 2.0]])
    draws = Omega + 0.01 * np.random.default_rng(0).normal(size=(50, 1, 1))
    post = Posterior(ChainSource(draws), tuple("abc"), np.arange(3), 1.0, 1.0, 1.0, num_draws=50)
    assert (post.select_edges(rule).probability is not None) == EDGE_RULES[rule].has_probability


def test_a_new_rule_is_offered_everywhere():
    """Registered before they are loaded, it is a choice of the command line, the explorer and the report."""
    code = """
from typing import get_args
from ggmflow.cli import options
assert get_args(options.RuleKey) == ("f1", "interval", "fdr", "probability", "large")
assert "large: the mean is large" in get_args(options.Rule)[1].help
from ggmflow.explorer.session import RULES
assert RULES["large"] == ("large", {}) and RULES["large"].label == "Mean above 0.5"
from ggmflow.report import content, text
assert content.RULES == ("f1", "interval", "fdr", "large") and text.RULE_NAMES["large"] == "Mean above 0.5"
"""
    subprocess.run([sys.executable, "-c", NEW_RULE + code], check=True, timeout=300)


def test_the_registry_is_light_to_import():
    """The command line's help needs it, and must not wait for JAX, SciPy, pandas or NumPy."""
    code = "import sys, ggmflow.posterior.edge_rules\n"
    code += "assert not {'jax', 'scipy', 'pandas', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
