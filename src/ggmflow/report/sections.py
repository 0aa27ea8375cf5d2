"""The parts of a report's page that depend on the numbers, as HTML at the point where it starts.

Every function gives texts for places of the template `page.html`, by name. Names of variables are escaped by `escape`.
"""

import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ggmflow.estimator.graphical_flow import GraphicalFlow
from ggmflow.report import svg as drawing
from ggmflow.report import text as words
from ggmflow.report.content import FIELDS, LEVEL, RULES, THRESHOLD, Numbers
from ggmflow.report.svg import escape

ROWS = 40  # of the table, before "show all"


def _name(name: str) -> str:
    return f"<bdi>{escape(name)}</bdi>"


def _facts(facts: list[tuple[str, str]]) -> str:
    return f'<dl class="facts">{"".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in facts)}</dl>'


def _figure(title: str, picture: str, caption: str = "", more: str = "") -> str:
    return (
        f'<figure class="card"{more}><h3>{title}</h3>{picture}'
        + (f"<figcaption>{caption}</figcaption>" if caption else "")
        + "</figure>"
    )


# ------------------------------------------------------------------------------------------------------------ the point
def about_point(numbers: Numbers, names: tuple[str, ...], island: dict[str, Any], caution: bool) -> dict[str, str]:
    """The cards on top, the controls, and what stands beside the network.

    `caution` tells whether the data check has found something serious.
    """
    return {
        "cards": _cards(numbers, names, caution),
        "note": _note(numbers),
        "controls": _controls(numbers),
        "legend": _legend(numbers, island["blanket"]),
        "here": _here(numbers, island),
        "surface": _surface(numbers),
        "measure": _measure(island["blanket"]),
    }


def _cards(numbers: Numbers, names: tuple[str, ...], caution: bool) -> str:
    point, selection, found = numbers.selected, numbers.selected.selections[0], words.strongest(numbers)
    if found is None:
        strongest = "No pair stands out from the others: these data show no network at this point."
    else:
        strongest = (
            f"The strongest joins {_name(names[numbers.first[found]])} and {_name(names[numbers.second[found]])} "
            f"({words.signed(point.values[0, found])}). About {words.percent(selection.expected_fdr)} of the edges are "
            "expected to be false."
        )
        if selection.could_be_empty:
            strongest = f"<strong>The scores could be those of a graph without edges.</strong> {strongest}"
    if numbers.choice is None:
        chosen = "The middle of the grid: there is no evidence to choose by."
    elif numbers.below_best() is None:
        chosen = "Given by whoever fitted the model."
    elif not numbers.starts_at_choice:
        chosen = "Where the evidence, the probability of the data, is highest among the values shown here."
    elif numbers.choice.at_ends:
        chosen = "Where the evidence is highest, but at an end of the fitted range: read the caution below."
    else:
        chosen = "Where the evidence, the probability of the data, is highest."
    edges = f"{words.count(selection.n_edges, 'edge')} among {words.count(len(numbers.first), 'pair')}"
    badge = f'<span class="badge {point.verdict}">{words.VERDICTS[point.verdict]}</span>'
    if caution:
        link = '<a href="#check">data check</a>'
        strongest += f" <strong>Read the {link} first: something in the data can make or hide edges.</strong>"
    cards = (
        ("Found", edges, strongest),
        ("At", words.condition(numbers, *numbers.start), chosen),
        ("Reliability there", badge, escape(words.trust(point, numbers))),
    )
    return "\n".join(f'<div><h3>{head}</h3><p class="big">{big}</p><p>{text}</p></div>' for head, big, text in cards)


def _note(numbers: Numbers) -> str:
    if numbers.temperature == 1:
        return ""
    return (
        f'<p class="note">These are not posteriors at temperature 1 but at {numbers.temperature:g}, the nearest that '
        "the model was fitted for: intervals are too narrow, and probabilities too sure.</p>"
    )


def _controls(numbers: Numbers) -> str:
    out = []
    for name, label, axis, k in (
        ("lam", "Shrinkage λ", numbers.lam, numbers.start[0]),
        ("q", "Exponent q", numbers.q, numbers.start[1]),
    ):
        shown = words.number(axis[k])
        if len(axis) == 1:
            out.append(f'<div><label>{label} = <output id="{name}-value">{shown}</output></label></div>')
            continue
        out.append(
            f'<div class="slider"><label for="{name}">{label} = <output id="{name}-value" for="{name}">{shown}</output>'
            f'</label><input type="range" id="{name}" min="0" max="{len(axis) - 1}" step="1" value="{k}" '
            f'autocomplete="off" aria-valuetext="{shown}"></div>'
        )
    options = "".join(f'<option value="{k}">{words.RULE_NAMES[rule]}</option>' for k, rule in enumerate(RULES))
    out.append(
        f'<div><label for="rule">What is an edge</label><select id="rule" autocomplete="off">{options}</select></div>'
    )
    hidden = " hidden" if len(numbers.points) == 1 else ""
    back = "Back to the selected point" if numbers.starts_at_choice else "Back to the start"
    out.append(f'<button type="button" id="home"{hidden}>{back}</button>')
    return "\n".join(out)


def _legend(numbers: Numbers, blanket: bool) -> str:
    measure = "association" if blanket else "partial correlation"
    out = (
        '<span class="swatch"></span> positive &ensp; <span class="swatch negative"></span> negative '
        f"{measure}; the wider, the stronger (the widest is {drawing.widest(numbers):.2g})."
    )
    if blanket:
        out += (
            ' <span class="swatch dot query"></span> asked for, <span class="swatch dot"></span> other variables; '
            "those that nothing joins are not drawn."
        )
    return out + " Nodes keep their places when λ and q change."


def _here(numbers: Numbers, island: dict[str, Any]) -> str:
    about = island["points"][numbers.start[0] * len(numbers.q) + numbers.start[1]]
    count, kept = about["n_edges"][0], int(numbers.selected.edges[0, numbers.kept].sum())
    edges = f"{count} of {len(numbers.first)} pairs" + (f" ({kept} of them are drawn)" if kept < count else "")
    facts = [
        ("λ", f'<span id="here-lam">{words.number(numbers.lam[numbers.start[0]])}</span>'),
        ("q", f'<span id="here-q">{words.number(numbers.q[numbers.start[1]])}</span>'),
        ("edges", f'<span id="here-edges">{edges}</span>'),
        ("expected to be false", f'<span id="here-fdr">{words.percent(about["expected_fdr"][0])}</span>'),
    ]
    if numbers.below_best() is not None:
        facts.append(("log evidence", f'<span id="here-evidence">{about["evidence"]}</span>'))
    badge = f'<span id="here-badge" class="badge {about["light"]}">{about["verdict"]}</span>'
    return f'<h3>At this point</h3>{_facts(facts)}<p>{badge} <span id="here-words">{about["words"]}</span></p>'


def _surface(numbers: Numbers) -> str:
    below = numbers.below_best()
    if below is None or min(below.shape) < 2:
        return ""

    def cell(i: int, j: int) -> tuple[str, str, str]:
        value = float(below[i, j])
        best = value > -0.005
        text = "★" if best else f"−{-value:.{int(value > -9.95)}f}" if value > -999.5 else "≪"
        text = text if np.isfinite(value) else "?"
        return (
            f"e{words.step(value)}{' best' if best else ''}",
            text,
            f"{words.condition(numbers, i, j)}: {words.evidence(value)}",
        )

    picture = drawing.grid_map(numbers, cell, "Evidence of every λ and q of the grid, below the best")
    keys = enumerate([*words.STEPS.values(), "less still"])
    legend = "".join(f'<li><i class="e{k}"></i>{text}</li>' for k, text in keys)
    caption = (
        "Log evidence below the best (★). The frame is the point shown"
        '<span class="js-only">; click another one to go there</span>.'
    )
    picture += f'<ul class="keys quiet">{legend}</ul>'
    return _figure("Evidence: how probable λ and q make the data", picture, caption)


def _measure(blanket: bool) -> str:
    partial = (
        "The strength is a partial correlation: between −1 and +1, the correlation of what is left of two variables "
        "once all others are taken out of both."
    )
    other = (
        " That is between two of the variables asked for. Between one of them and any other variable it is the weight "
        "of the other one in predicting it from all variables, in the scale used (see “Data”)."
    )
    return partial + other if blanket else partial


# ------------------------------------------------------------------------------------------------------------ the edges
def edges(numbers: Numbers, names: tuple[str, ...], island: dict[str, Any]) -> dict[str, str]:
    """The table of edges and the curve of one pair."""
    count = int(numbers.selected.edges[0, numbers.kept].sum())
    more = f"The {ROWS} strongest of {count} edges are listed." if count > ROWS else f"{words.count(count, 'edge')}."
    more = more if count else "No edges here."
    return {
        "caption": _caption(numbers),
        "head": _head(island),
        "rows": _rows(numbers, names, island),
        "more": more + words.edges_in_page(count, numbers.selected.selections[0].n_edges),
        "blank_row": _row(None, ("", ""), np.zeros(len(FIELDS)), "", island),
        "along": _along(numbers, names, island),
    }


def _caption(numbers: Numbers) -> str:
    measure = "Partial correlation" if numbers.inside.all() else "Association"
    out = f"{measure} of each pair, its mean and 90 % interval, strongest first."
    if len(numbers.kept) < len(numbers.first):
        out += (
            f" This page holds {len(numbers.kept)} of the {len(numbers.first)} pairs: as far as there is room, first "
            "the edges of the point where it starts, then those that are an edge elsewhere on the grid, then others."
        )
    return out


def _head(island: dict[str, Any]) -> str:
    def at(x: str, anchor: str, text: str) -> str:
        return f'<text class="tick" x="{x}" y="13" text-anchor="{anchor}">{text}</text>'

    limit = f"{island['limit']:g}"
    axis = at("0%", "start", f"−{limit}") + at("50%", "middle", "0") + at("100%", "end", f"+{limit}")
    return (
        '<tr><th scope="col">pair</th>'
        + ('<th scope="col" class="wide-only">measure</th>' if island["blanket"] else "")
        + f'<th scope="col" class="plot"><svg height="18" aria-hidden="true">{axis}</svg></th>'
        f'<th scope="col" class="number">mean</th><th scope="col" class="number">{100 * LEVEL:g} % interval</th>'
        f'<th scope="col" class="number wide-only">sure of the sign</th>'
        f'<th scope="col" class="number wide-only">P(size &gt; {THRESHOLD:g})</th></tr>'
    )


def _rows(numbers: Numbers, names: tuple[str, ...], island: dict[str, Any]) -> str:
    point, kept = numbers.selected, numbers.kept
    found = np.flatnonzero(point.edges[0, kept])
    order = found[np.argsort(-np.abs(point.values[0, kept[found]]), kind="stable")][:ROWS].tolist()

    def row(k: int) -> str:
        pair = kept[k]
        both = names[numbers.first[pair]], names[numbers.second[pair]]
        return _row(k, both, point.values[:, pair], words.MEASURES[int(numbers.inside[pair])], island)

    return "\n".join(map(row, order))


def _row(pair: int | None, names: tuple[str, str], values: np.ndarray, measure: str, island: dict[str, Any]) -> str:
    """A row of the table; the one without a pair is what the page's script copies and fills in."""
    mean, low, high, positive, large = values.tolist()
    sign, limit, decimals = "negative" if mean < 0 else "positive", island["limit"], island["decimals"]
    x = [f"{50 * (1 + float(np.clip(value / limit, -1, 1))):.2f}%" for value in (low, high, mean)]
    chosen = " chosen" if pair is not None and pair == island["pair"] else ""
    return (
        f'<tr class="edge-row{chosen}" data-pair="{"" if pair is None else pair}">'
        f'<td><button type="button" class="pair">{_name(names[0])} – {_name(names[1])}</button></td>'
        + (f'<td class="measure quiet wide-only">{measure}</td>' if island["blanket"] else "")
        + '<td class="plot"><svg height="20" aria-hidden="true"><line class="zero" x1="50%" x2="50%" y1="0" y2="20"/>'
        f'<line class="whisker {sign}" x1="{x[0]}" x2="{x[1]}" y1="10" y2="10"/>'
        f'<circle class="dot {sign}" cx="{x[2]}" cy="10" r="4.5"/></svg></td>'
        f'<td class="number mean-value">{words.signed(mean, decimals)}</td>'
        f'<td class="number interval-value">{words.signed(low, decimals)} … {words.signed(high, decimals)}</td>'
        f'<td class="number sign-value wide-only">{words.percent(max(positive, 1 - positive))}</td>'
        f'<td class="number large-value wide-only">{words.percent(large)}</td></tr>'
    )


def _along(numbers: Numbers, names: tuple[str, ...], island: dict[str, Any]) -> str:
    box, k = island["frames"].get("pair-curve"), island["pair"]
    if box is None or k is None:
        return ""
    line, low, high = (_slice(numbers, numbers.field(name)[:, k]) for name in ("association", "lower", "upper"))
    pair = numbers.kept[k]
    symbol, other = ("λ", "q") if island["along"] == "lam" else ("q", "λ")
    picture = drawing.curve(
        "pair-curve",
        box,
        numbers,
        line,
        (low, high),
        ylabel="association",
        label=f"Association of the chosen pair and its 90 % interval along {symbol}",
    )
    name = f'<bdi id="pair-name">{escape(f"{names[numbers.first[pair]]} – {names[numbers.second[pair]]}")}</bdi>'
    caption = (
        f"Mean and 90 % interval at the {other} shown."
        '<span class="js-only"> Choose another pair in the table or in the network.</span>'
    )
    return _figure(f"One pair along {symbol}: {name}", picture, caption, ' id="along"')


def _slice(numbers: Numbers, values: np.ndarray) -> np.ndarray:
    """Values of all points to those along the axis of the curves, through the start."""
    grid = values.reshape(len(numbers.lam), len(numbers.q))
    return grid[:, numbers.start[1]] if len(numbers.lam) > 1 else grid[numbers.start[0]]


# ----------------------------------------------------------------------------------------------------------- the choice
def choice(numbers: Numbers, island: dict[str, Any]) -> dict[str, str]:
    """Why this λ and q."""
    note = ' class="note"'
    texts = "\n".join(f"<p{note * text.startswith('Caution')}>{escape(text)}</p>" for text in words.selection(numbers))
    box, below = island["frames"].get("evidence-curve"), numbers.below_best()
    if below is None or box is None:
        return {"choice": texts, "evidence_curve": ""}
    i, j = numbers.start
    along_lam = island["along"] == "lam"
    fixed = f"q = {words.number(numbers.q[j])}" if along_lam else f"λ = {words.number(numbers.lam[i])}"
    symbol = "λ" if along_lam else "q"
    line = _slice(numbers, np.where(np.isfinite(below), below, box["low"]))
    label = f"Evidence along {symbol}"
    picture = drawing.curve("evidence-curve", box, numbers, line, ylabel="log evidence below the best", label=label)
    caption = "A point 1 below the best makes the data 2.7 times less probable, 3 below 20 times, 5 below 150 times."
    if np.any(below < box["low"]):
        caption += f" What is lower than −{-box['low']:g} is drawn at the bottom."
    title = f'Evidence along {symbol} at <span id="curve-at">{fixed}</span>'
    return {"choice": texts, "evidence_curve": _figure(title, picture, caption)}


# ------------------------------------------------------------------------------------------------------------ the trust
def trust(model: GraphicalFlow, numbers: Numbers) -> dict[str, str]:
    """How good the fit is at every point, and what to do where it is not."""
    how = {"finished": "ran to its end", "stopped early": "stopped when there was no more to gain"}
    training = (
        f"Training {how.get(model.status_, 'was interrupted; this is the best model so far')}: {model.n_iter_} steps"
    )
    if skipped := int(model.history_["skipped"].iloc[-1]):
        training += f", {skipped} of them skipped because their gradient was not finite"
    remedy = ""
    verdicts = {each.verdict for each in numbers.points}
    if "fair" in verdicts:
        remedy += (
            "<h3>What to do about fair points</h3><p>Fewer than a tenth of the draws are effective there, which costs "
            "accuracy, not correctness: <code>model.posterior(lam, q, num_draws=20_000)</code> brings it back.</p>"
        )
    if "poor" in verdicts:
        remedy += (
            "<h3>What to do about poor points</h3><ul>"
            "<li>For one point: <code>model.posterior(lam, q).refine()</code> gives draws that are exact up to the "
            "length of its chains.</li>"
            "<li>For all points: fit again with more <code>steps</code>, or for narrower ranges of <code>lam</code> "
            "and <code>q</code>, above all without the corner of large λ and small q.</li>"
            "<li>The network is often right where the last digits are not: see whether it changes between a poor point "
            "and a good one next to it.</li></ul>"
        )
    return {
        "training": f"{training}.",
        "remedy": remedy,
        "trust_map": _trust_map(numbers),
        "trust_table": _trust_table(numbers),
    }


def _trust_map(numbers: Numbers) -> str:
    if len(numbers.points) == 1:
        return ""

    def cell(i: int, j: int) -> tuple[str, str, str]:
        point = numbers.at(i, j)
        words_at = f"{words.condition(numbers, i, j)}: {words.VERDICTS[point.verdict]}. {words.trust(point, numbers)}"
        return point.verdict, f"{point.ess * numbers.num_draws:.0f}", words_at

    picture = drawing.grid_map(numbers, cell, "Effective draws at every point of the grid")
    keys = "".join(f'<li><span class="badge {kind}">{name}</span></li>' for kind, name in words.VERDICTS.items())
    title = f"Effective draws, of {numbers.num_draws}, at every point"
    return _figure(title, f'{picture}<ul class="keys quiet">{keys}</ul>')


def _trust_table(numbers: Numbers) -> str:
    def cells(k: int) -> list[str]:
        point = numbers.points[k]
        lam, q = numbers.lam[k // len(numbers.q)], numbers.q[k % len(numbers.q)]
        evidence = [
            f"{value:.2f}".replace("-", "−") if np.isfinite(value) else "–" for value in (point.evidence, point.se)
        ]
        found = [f"{point.ess * numbers.num_draws:.0f}", f"{point.khat:.2f}", words.VERDICTS[point.verdict]]
        return [words.number(lam), words.number(q), str(point.selections[0].n_edges), *evidence, *found]

    head = ("λ", "q", "edges", "log evidence", "its s.e.", "effective draws", "k̂", "verdict")

    def row(k: int) -> str:
        return "<tr>" + "".join(f'<td class="number">{text}</td>' for text in cells(k)) + "</tr>"

    rows = "".join(map(row, range(len(numbers.points))))
    titles = "".join(f'<th scope="col" class="number">{text}</th>' for text in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"


# ----------------------------------------------------------------------------------------------- data and reproduction
def data(model: GraphicalFlow, data_name: str | None) -> dict[str, str]:
    """What the model saw."""
    scatter = model.scatter_
    query = [scatter.names[k] for k in model.query_]
    missing = {
        "error": "none: a table with missing values would have been refused",
        "drop": "rows with missing values were left out",
        "em": "replaced by what the other values of the row let expect (EM); intervals are then a little too narrow",
    }[model.missing]
    scaled = "centred, and scaled to variance 1" if np.any(scatter.scale != 1) else "centred, not scaled"
    transform = "none" if scatter.transform is None else "normal scores of the ranks (nonparanormal)"
    facts = [
        ("data", "not named" if data_name is None else _name(data_name)),
        ("rows used", f"{scatter.n:g}"),
        ("variables", str(scatter.n_features)),
        ("asked for", "all links" if len(query) == scatter.n_features else ", ".join(map(_name, query))),
        ("transform", transform),
        ("scale", f"{scaled}; λ and the associations refer to that scale"),
        ("missing values", missing),
    ]
    units = " of its normal scores" if scatter.transform else ""
    rows = "".join(
        f'<tr><td>{_name(name)}</td><td class="number">{mean:.4g}</td><td class="number">{scale:.4g}</td></tr>'
        for name, mean, scale in zip(scatter.names, scatter.mean, scatter.scale, strict=True)
    )
    head = "".join(
        f'<th scope="col"{kind}>{text}</th>'
        for text, kind in (("variable", ""), (f"mean{units}", ' class="number"'), ("scale", ' class="number"'))
    )
    return {
        "data": f"{_facts(facts)}<details><summary>All {scatter.n_features} variables</summary>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    }


def data_check(model: GraphicalFlow) -> dict[str, str]:
    """What a look at the data before the fit has found."""
    check = model.scatter_.check
    opening, lines = words.data_check(check)
    kind = ' class="note"' if check is not None and check.serious else ""
    items = "".join(f"<li><bdi>{escape(line)}</bdi></li>" for line in lines)
    return {"data_check": f"<p{kind}>{escape(opening)}</p>" + (f"<ul>{items}</ul>" if items else "")}


def again(model: GraphicalFlow, numbers: Numbers, data_name: str | None, reading: Mapping[str, Any]) -> dict[str, str]:
    """Code, versions and ranges to get the same numbers."""
    from ggmflow import __version__

    defaults = GraphicalFlow().get_params(deep=False)
    given = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    given = {name: value for name, value in given.items() if name != "progress" and value != defaults[name]}
    seeded = isinstance(given.get("random_state"), int)
    if not seeded:  # a generator has moved on since, and no line of code brings its state back
        given.pop("random_state", None)
    data = repr(data_name or "data.csv")
    if reading:  # what belongs to the reading of a file is then said there
        read_as = {name: given.pop(name) for name in ("standardize", "transform", "missing") if name in given}
        data = f"gf.Scatter.from_data({data}, {_arguments(read_as | dict(reading))})"
    lam, q = float(numbers.lam[numbers.start[0]]), float(numbers.q[numbers.start[1]])
    warm = "" if numbers.temperature == 1 else f"temperature={numbers.temperature!r}, "
    options = f"{warm}num_draws={numbers.num_draws}, random_state=0"
    code = [
        "import ggmflow as gf",
        f"model = gf.GraphicalFlow({_arguments(given)}).fit({data})",
        f"post = model.posterior(lam={lam!r}, q={q!r}, {options})",
        "post.select_edges()                                  # the edges",
        "post.association(), post.association_interval(0.9)   # their strengths and intervals",
    ]
    if not seeded:
        code.insert(1, "# The fit had no seed (random_state): another one differs in the last digits.")
    ranges = ", ".join(
        f"{symbol} = {words.number(low)}"
        if low == high
        else f"{symbol} from {words.number(low)} to {words.number(high)}"
        for symbol, (low, high) in zip(("λ", "q", "T"), model._fitted_ranges, strict=True)
    )
    versions = {
        "ggmflow": __version__,
        "JAX": jax.__version__,
        "NumPy": np.__version__,
        "Python": platform.python_version(),
    }
    return {
        "code": escape("\n".join(code)),
        "ranges": ranges,
        "architecture": model.flow_.architecture,
        "version": escape(__version__),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_plain(value)!r}" for name, value in values.items())


def _plain(value: Any) -> Any:
    """The same value as one whose `repr` is code: numbers and arrays of NumPy, columns of pandas, paths."""
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Path):
        return str(value)
    # Strings, too, are iterable, and a generator of random numbers is not.
    return value if isinstance(value, str) or not isinstance(value, Iterable) else [_plain(each) for each in value]
