"""Tables, paragraphs and differences as text."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.paper.text import difference, filled, joined, markdown, percent, span


def test_bars_in_a_table_of_markdown():
    lines = ["| what | ours |", "| --- | ---: |", r"| \|ω\| | 1 |"]
    assert markdown(["what", "ours"], [["|ω|", 1]], right=True).splitlines() == lines


def test_only_paragraphs_are_filled():
    assert filled("| " + "x" * 200) == "| " + "x" * 200
    assert filled("one", "two  three") == "one two three"
    assert max(map(len, filled("word " * 100).splitlines())) <= 120


def test_small_words():
    assert joined(["a"]) == "a" and joined(["a", "b", "c"]) == "a, b and c"
    assert percent(0.9) == "90 %"
    assert span([0.2, 0.1], ".1f") == "0.1 to 0.2" and span([0.11, 0.12], ".1f") == "0.1"


def test_difference_has_the_interval_of_a_paired_t_test():
    ours, theirs = pd.Series([0.5, 0.7, np.nan, 0.6]), pd.Series([0.4, 0.5, 0.1, 0.3])
    found, expected = difference(ours - theirs), stats.ttest_rel(ours[[0, 1, 3]], theirs[[0, 1, 3]])
    assert found == pytest.approx((0.2, *expected.confidence_interval()))
    assert found.sign == 0 and difference(ours + 1 - theirs).sign == 1 and difference(ours - 1 - theirs).sign == -1
    assert difference(ours[:1] - theirs[:1]).sign == 0  # one data set proves nothing
