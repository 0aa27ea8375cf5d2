"""Sentences and numbers of a report as text."""

import numpy as np
import pytest

from ggmflow.model.conditions import Boundary, Choice
from ggmflow.posterior.weights import Verdict
from ggmflow.report import text


def test_numbers_as_text():
    assert text.evidence(0.0) == "the highest of this grid"
    assert text.evidence(-np.log(20)).endswith("the data are 20 times less probable")
    assert text.evidence(-50.0).endswith("more than 10 000 times less probable")
    assert [text.step(value) for value in (0.0, -2.0, -4.0, -6.0, -60.0, np.nan)] == [0, 1, 2, 3, 4, 4]
    assert [text.percent(value) for value in (0, 0.001, 0.5, 0.999, 1)] == ["0 %", "<1 %", "50 %", ">99 %", "100 %"]
    assert [text.number(value) for value in (0.12345, 1.0, 1234.5)] == ["0.123", "1", "1230"]
    assert text.signed(-0.123) == "−0.12" and text.count(1, "edge") == "1 edge"


@pytest.mark.slow
def test_text_of_a_point_has_its_numbers_and_the_consequence_of_its_verdict(small):
    _, content = small
    point = content.selected._replace(ess=0.05, khat=0.3)
    texts = [text.trust(point._replace(verdict=verdict), content) for verdict in Verdict]
    assert len(set(texts)) == len(Verdict)
    for verdict, shown in zip(Verdict, texts, strict=True):
        assert "50 of 1000 draws" in shown and "0.30" in shown and shown.endswith(text.CONSEQUENCES[verdict])


def test_number_of_points_by_verdict(small):
    _, content = small
    kinds = (Verdict.GOOD, Verdict.FAIR, Verdict.POOR)
    good, fair, poor = (content.selected._replace(verdict=verdict) for verdict in kinds)
    assert text.reliability(content._replace(points=[good])) == ""
    assert text.reliability(content._replace(points=[fair, fair])) == "All 2 points of the grid are fair."
    found = text.reliability(content._replace(points=[poor, good, fair, good]))
    assert found == "The 4 points of the grid: 2 good, 1 fair and 1 poor."


def test_selection_on_a_grid_without_the_choice(small):
    _, content = small
    paragraphs = text.selection(content._replace(choice=Choice(1.2345, 0.6543, ())))
    assert "most probable" in paragraphs[0].text and "not on the grid" in paragraphs[1].text
    assert not any(each.caution for each in paragraphs)


def test_selection_at_a_boundary_is_a_caution(small):
    _, content = small
    i, j = content.start
    choice = Choice(content.lam[i], content.q[j], (Boundary("q", "high"),))
    cautions = [each.text for each in text.selection(content._replace(choice=choice)) if each.caution]
    assert len(cautions) == 1 and "the evidence is highest at the upper end of q" in cautions[0]


def test_selection_without_evidence(small):
    _, content = small
    (failed,) = text.selection(content._replace(choice=None, evidence_error="it is not finite"))
    assert failed.text.startswith("The evidence could not be computed: it is not finite.")
    (cold,) = text.selection(content._replace(choice=None, temperature=0.5))
    assert "fitted for temperatures up to 0.5 only" in cold.text


@pytest.mark.parametrize("status", ["finished", "stopped early", "interrupted"])
def test_training(status):
    assert text.training(status, 800, 0).endswith(": 800 steps.")
    assert "3 of them skipped" in text.training(status, 800, 3)


def test_training_of_no_steps():
    assert "not trained" in text.training("finished", 0, 0) and "0 steps" not in text.training("finished", 0, 0)


def test_control_characters_are_replaced():
    assert text.printable("a\x00b\ud800c\td") == "a\ufffdb\ufffdc\td"
