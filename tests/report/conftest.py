"""A small fitted model with its report, hostile names, and functions that read a page."""

import html.parser
import json
import warnings

import numpy as np
import pandas as pd
import pytest

import ggmflow as gf
from ggmflow.posterior.weights import Verdict
from ggmflow.report.content import Point, collect
from tests.support.models import quick, without_training

NASTY = [
    "<script>alert(1)</script>",
    "</script><script>document.title='owned'</script>",
    "<!--<img src=x onerror=document.title='owned'>",
    "\"'&amp; \u2028 ${x} $title {{ title }} {% raw %} \\u003c \u202eback",
    "long " * 30,
]
FIVE = ["tension", "pulse", "sleep", "age", "mood"]
GRID = {"lam": [0.8, 4.0, 24.0], "q": [0.4, 1.0]}


@pytest.fixture(scope="module", autouse=True)
def untrained():
    with without_training():
        yield


@pytest.fixture(scope="session")
def small():
    """A model of five variables, some of them linked, and its content on a small grid."""
    with without_training():
        fitted = quick(temperature=1.0, lam=(0.5, 30.0)).fit(five_variables(FIVE))
        return fitted, collect(fitted, **GRID)


@pytest.fixture(scope="session")
def nasty():
    """A model whose names contain markup, template syntax and control characters."""
    with without_training():
        return quick(temperature=1.0, lam=(0.5, 30.0)).fit(five_variables(NASTY))


def five_variables(names):
    X = np.array(gf.simulate.toy_problem(5, 60, random_state=3)[0])
    X[:, 1] += 0.9 * X[:, 0]
    X[:, 3] += 0.5 * X[:, 2]
    X[:, 4] -= 0.7 * X[:, 2]
    return pd.DataFrame(X, columns=names)


def posterior_at(model, content, i, j):
    """The posterior at a point of the grid, without its warning about a poor fit, which the page contains."""
    post = model.posterior(content.lam[i], content.q[j], content.temperature, num_draws=content.num_draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.PoorFitWarning)
        post.mean()  # warns only once
    return post


def a_point(associations, edges):
    """A point with these associations, and these edges by all rules."""
    values = np.tile(np.asarray(associations, float), (5, 1))
    return Point(values, [], np.tile(np.asarray(edges, bool), (3, 1)), 0.1, 0.9, Verdict.GOOD, 0.0, 0.0, True)


class Elements(html.parser.HTMLParser):
    """Names and attributes of all elements of a page, and the text of its JSON data."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.data_text, self._in_data = [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self._in_data = ("id", "numbers") in attrs

    def handle_data(self, data):
        self.data_text += data if self._in_data else ""
        self._in_data = False


def data_of(page):
    """Data of the script of a page."""
    return json.loads(Elements(page).data_text)
