"""Texts of the report's pictures: where they stand, and that none runs into another."""

from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from ggmflow.report.content import Content, Point
from ggmflow.report.svg import curve, frames, grid_map, network

RANGES = {"narrow": (1.0, 3.0), "usual": (0.5, 8.0), "wide": (0.01, 1000.0)}
Q = np.array([0.25, 0.3, 0.35, 0.447, 1.25])


def content_of(names, lam, q=Q):
    """All pairs, of which every third is an edge at all of the points; associations that differ."""
    d = len(names)
    i, j = np.triu_indices(d, 1)
    values = np.tile(np.linspace(-0.4, 0.5, len(i)), (5, 1))
    edges = np.tile(np.arange(len(i)) % 3 == 0, (3, 1))
    point = Point(values, [], edges, 0.1, 0.9, "good", 0.0, 0.0, True)
    points, kept = [point] * (len(lam) * len(q)), np.arange(len(i))
    return Content(names, np.arange(d), lam, q, (1, 1), 1.0, 500, points, i, j, np.ones(len(i), bool), kept, None, "")


def texts_of(svg):
    """Texts by what they are, each with its box in pixels; letters are taken to be 0.55 of the font's size wide."""
    found = []
    for element in ElementTree.fromstring(svg).iter("text"):
        if not (text := element.text or "") or "transform" in element.attrib:
            continue
        kind = element.get("class", "name")
        size = {"tick": 13, "axis-title": 14}.get(kind) or float(element.get("font-size", 13.5))
        x, y, width = float(element.get("x")), float(element.get("y")), 0.55 * size * len(text)
        left = x - {"start": 0, "middle": width / 2, "end": width}[element.get("text-anchor", "middle")]
        gap = 2 if kind == "tick" else 0  # on each side: content that touch read as one
        found.append((kind, text, (left - gap, y - 0.75 * size, left + width + gap, y + 0.2 * size)))
    return found


def overlapping(texts):
    return [
        (a, b)
        for (_, a, first), (_, b, second) in combinations(texts, 2)
        if first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]
    ]


def test_texts_that_overlap_are_found():
    """Else the tests below could not fail."""
    svg = '<svg><text class="tick" x="0" y="0">0.0285</text><text class="tick" x="{}" y="0">0.0811</text></svg>'
    assert overlapping(texts_of(svg.format(30))) == [("0.0285", "0.0811")]
    assert overlapping(texts_of(svg.format(60))) == []


@pytest.mark.parametrize("length", [12, 3])
@pytest.mark.parametrize("ends", RANGES.values(), ids=RANGES)
def test_ticks_of_maps_and_curves(ends, length):
    content = content_of("abcd", np.geomspace(*ends, length))
    maps = grid_map(content, lambda i, j: ("", "−0.2", "a point"), "a map")
    frame = frames(content)["pair-curve"]
    line = curve("pair-curve", frame, content, np.zeros(length), ylabel="association", label="a curve")
    for svg in (maps, line):
        texts = texts_of(svg)
        assert overlapping(texts) == []
        width, height = map(float, ElementTree.fromstring(svg).get("viewBox").split()[2:])
        assert all(
            left >= -2 and right <= width + 2 and 0 <= bottom <= height for _, _, (left, _, right, bottom) in texts
        )
    below = [text for kind, text, (_, top, *_) in texts_of(maps) if kind == "tick" and top > 34 * len(Q)]
    assert len(below) >= min(length, 6) and below[0] == f"{ends[0]:g}"


@pytest.mark.parametrize("d", [5, 30, 60])
@pytest.mark.parametrize("length", [3, 20, 40])
def test_names_in_the_network(d, length):
    """Where there is no room for a name it is not written, but every node is named when it is pointed at."""
    names = [f"{k:02d}{'abcdefgh' * 5}"[:length] for k in range(d)]
    rng = np.random.default_rng(0)
    svg = network(content_of(names, np.array([1.0, 3.0])), rng.uniform(-1, 1, (d, 2)))
    texts = texts_of(svg)
    assert overlapping(texts) == []
    assert all(left >= -1 and right <= 721 for _, _, (left, _, right, _) in texts)
    titles = {element.text for element in ElementTree.fromstring(svg).iter("title")}
    assert set(names) <= titles
    least = {5: 5, 30: 25, 60: 40}[d]
    assert len(texts) >= (d if length == 3 and d < 60 else least), len(texts)
