"""Evidence that becomes known while a page is open."""

import threading

import numpy as np
import pytest
from bokeh.document import Document

from ggmflow.explorer import prepare
from ggmflow.explorer.late_surface import LateSurface
from ggmflow.explorer.session import Session, make_document
from ggmflow.model.conditions import Choice
from ggmflow.views.pairs import middle
from ggmflow.views.surface import Surface
from tests.support.models import TABLE, quick

pytestmark = pytest.mark.filterwarnings("ignore::ggmflow.posterior.posterior.PoorFitWarning")


@pytest.fixture
def model(untrained):
    return quick().fit(TABLE)


@pytest.fixture
def surface(model):
    lam, q = np.geomspace(*model.lam_range_, 9), np.linspace(*model.q_range_, 5)
    return Surface(lam, q, -(np.log(lam / lam[6])[:, None] ** 2) - (q - q[1]) ** 2, Choice(lam[6], q[1], ()))


def open_page(model, compute):
    """A page, and its evidence that has been computed meanwhile; the page has not been told in its own thread yet."""
    ended, late = threading.Event(), LateSurface(compute)
    prepared = prepare(model, evidence=False)._replace(late=late)
    page = Session(Document(), prepared)
    late.when_ended(ended.set)
    assert ended.wait(20)
    return page, prepared


def test_a_page_opens_in_the_middle_and_goes_to_the_maximum(model, surface):
    may_end = threading.Event()
    prepared = prepare(model, evidence=False)._replace(late=LateSurface(lambda: may_end.wait(20) and surface))
    page = Session(Document(), prepared)
    assert "being computed" in page.panels.texts["evidence"].text and not page.controls.best.visible
    assert page.state.condition[:2] == pytest.approx(middle(model)[:2], rel=1e-3)
    ended = threading.Event()
    prepared.late.when_ended(ended.set)
    may_end.set()
    assert ended.wait(20)
    assert page.doc.session_callbacks  # the page is told in its own thread
    page.show_evidence()
    assert "★" in page.panels.texts["evidence"].text and page.controls.best.visible
    assert page.state.condition[:2] == pytest.approx(surface.best[:2], rel=1e-3)
    ring = [each.glyph.line_color for each in page.panels.plane.figure.renderers[-2:]]
    assert ring == ["#ffffff", page.panels.plane.figure.renderers[-1].glyph.line_color]  # still above the contours
    make_document(other := Document(), prepared)  # a page that opens now has the evidence at once
    assert other.select_one({"name": "best"}).visible


def test_a_page_that_was_moved_stays_where_it_is(model, surface):
    page, _ = open_page(model, lambda: surface)
    page.controls.q.value = model.q_range_[1]
    moved = page.state.condition
    page.show_evidence()
    assert page.state.condition == moved and page.controls.best.visible


def test_evidence_that_cannot_be_computed_is_not_shown(model):
    def fail():
        raise FloatingPointError

    page, _ = open_page(model, fail)
    page.show_evidence()
    assert "no evidence computed" in page.panels.texts["evidence"].text and not page.controls.best.visible


def test_closed_pages_are_forgotten():
    late, told, may_end = LateSurface(lambda: may_end.wait(20) and None), [], threading.Event()
    ended, call = threading.Event(), lambda: told.append(1)
    late.when_ended(call)
    late.forget(call)
    late.when_ended(ended.set)
    late.start()
    late.start()  # has no effect
    may_end.set()
    assert ended.wait(20) and not told and late.has_ended and late.surface is None
