"""Figures of the blankets, drawn from their tables."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.paper.blanket import clinical
from experiments.paper.blanket.jobs import COMPARED, EDGE, EXPONENTS, STRONGEST, WIDE
from experiments.paper.reference import LIMIT
from experiments.paper.statistics import Frame, Tables
from ggmflow import plot
from ggmflow.plot.style import LINES, MARKERS, NEUTRAL, SMALL, legend, open_frame, set_title
from ggmflow.plot.ticks import set_names

_QUERY = "#fff3bf"  # behind the names of clinical variables
_MOST_LINES = 12  # entries in a panel of intervals


def figures(tables: Tables) -> dict[str, Figure]:
    """All figures, from the tables alone."""
    with matplotlib.rc_context({"font.size": 9}):
        networks = {f"network_{study}": _draw_networks(tables, study) for study in studies_of(tables)}
        return {
            "evidence": _draw_evidence(tables),
            "agreement": _draw_agreement(tables),
            **networks,
            "intervals": _draw_intervals(tables),
            "across_q": _draw_across_q(tables),
        }


def studies_of(tables: Tables) -> list[str]:
    return tables["studies"]["study"].tolist()


def where(table: Frame, **values: Any) -> Frame:
    """Rows with these values."""
    for column, value in values.items():
        table = table[np.isclose(table[column], value) if isinstance(value, float) else table[column] == value]
    return table


def _draw_evidence(tables: Tables) -> Figure:
    studies = studies_of(tables)
    figure = Figure(figsize=(max(7.0, 3.7 * len(studies)), 3.6), layout="constrained")
    axes = figure.subplots(1, len(studies), squeeze=False)[0]
    for ax, study in zip(axes, studies, strict=True):
        table = where(tables["evidence"], study=study)
        plot.evidence_curve(table.rename(columns={"conditional": "log_evidence"}), ax=ax, title=study)
        top = table["conditional"].max()
        ax.set_ylim(top - 40, top + 4)  # nats
        full = float(where(tables["choices"], study=study, rule="full", q=1.0)["lam"].iloc[0])
        line = ax.axvline(full, color=NEUTRAL, lw=1.2, ls=":", label="λ of all data, q = 1")
        ax.get_legend().remove()
        ax.set_ylabel("log p(X₁ | X₂, λ, q)" if ax is axes[0] else "")
    handles = [
        Line2D([], [], color=LINES[k], marker=MARKERS[k], ms=5, lw=1.6, label=f"q = {q:g}")
        for k, q in enumerate(sorted(EXPONENTS))
    ]
    rough = Line2D([], [], ls="", marker="o", mfc="white", color=NEUTRAL, label="rough")
    star = Line2D([], [], ls="", marker="*", ms=11, mfc="white", mec="black", label="highest point of the grid")
    _legend_of_figure(figure, [*handles, star, rough, line])
    return figure


def _legend_of_figure(figure: Figure, handles: Sequence[Any]) -> None:
    """Draw a legend below all panels, in as many columns as fit."""
    longest = max(len(str(each.get_label())) for each in handles)
    columns = max(1, min(len(handles), int(72 * figure.get_figwidth() / (45 + 0.56 * SMALL * longest))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL)


def _draw_agreement(tables: Tables) -> Figure:
    """Quantile errors of the flow at every q, and the exact sampler's own."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    ax = figure.subplots()
    studies, width = studies_of(tables), 0.025
    for k, study in enumerate(studies):
        points = where(tables["points"], study=study).sort_values("q")
        at = points["q"] + width * (k - (len(studies) - 1) / 2)
        style: dict[str, Any] = {"ls": "", "marker": MARKERS[k], "ms": 6, "color": LINES[k]}
        ax.vlines(at, points["own_error"], points["error"], color=LINES[k], lw=1)
        ax.plot(at, points["error"], label=study, **style)
        ax.plot(at, points["own_error"], mfc="white", **style)
        refined = points["refined_error"].notna()
        ax.plot(at[refined], points["refined_error"][refined], ls="", marker="x", ms=6, color=LINES[k])
    ax.axhline(LIMIT, color=NEUTRAL, lw=1, ls=":")
    ax.set(xlabel="exponent q", ylabel="quantile error (sd)", xticks=EXPONENTS, ylim=(0, None))
    handles = [Line2D([], [], color=LINES[k], marker=MARKERS[k], ls="", label=study) for k, study in enumerate(studies)]
    grey: dict[str, Any] = {"ls": "", "color": NEUTRAL, "marker": "o"}
    handles += [
        Line2D([], [], **grey, label="flow"),
        Line2D([], [], **grey, mfc="white", label="exact sampler's own"),
        Line2D([], [], color=NEUTRAL, ls=":", label="limit"),
    ]
    if tables["points"]["refined_error"].notna().any():
        handles.append(Line2D([], [], color=NEUTRAL, ls="", marker="x", label="refined draws"))
    legend(ax, handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    open_frame(ax)
    return figure


def _draw_networks(tables: Tables, study: str) -> Figure:
    """Networks at the compared q, with every variable in the same place."""
    entries = where(tables["entries"], study=study)
    query = list(clinical.STUDIES[study].clinical)
    genes = sorted(set(entries[entries["edge"]]["column"]) - set(query))
    names, positions = [*query, *genes], None
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    figure.suptitle(
        f"{study}: pairs whose {100 * EDGE:g} % interval excludes zero, genes without one left out. "
        "Width: association; blue and solid positive, orange and dashed negative",
        fontsize=9,
    )
    for ax, q in zip(figure.subplots(1, len(COMPARED)), COMPARED, strict=True):
        table = where(entries, q=q)
        strength, joined = _square(table, names)
        positions = _positions(_square(entries, names)[1], len(query)) if positions is None else positions
        # −ρ with ones on the diagonal has the partial correlations ρ.
        precision = np.eye(len(names)) - strength
        count, lam = int(joined.sum()) // 2, float(table["lam"].iloc[0])
        used = where(tables["points"], study=study, q=q)["draws"].iloc[0]
        title = f"q = {q:g}, λ = {lam:.1f}: {count} edge{'s' * (count != 1)} ({used} draws)"
        options = {"positions": positions, "isolated": True, "width": 22.0, "key": False}
        plot.network(precision, joined, names, title=title, ax=ax, **options)
        _mark_query(ax, query)
    return figure


def _square(table: Frame, names: Sequence[str]) -> tuple[Float[np.ndarray, "k k"], Bool[np.ndarray, "k k"]]:
    """Associations and edges among these variables, as symmetric matrices."""
    place = {name: k for k, name in enumerate(names)}
    strength, joined = np.zeros((len(names),) * 2), np.zeros((len(names),) * 2, bool)
    for row in table[table["edge"]].itertuples():
        at = place[row.row], place[row.column]
        strength[at] = strength[at[::-1]] = row.mean
        joined[at] = joined[at[::-1]] = True
    return strength, joined


def _positions(joined: Bool[np.ndarray, "k k"], s: int) -> Float[np.ndarray, "k 2"]:
    """The query on an inner circle, genes on an outer one, each as near as possible to its neighbours."""
    inner = 2 * np.pi * np.arange(s) / s
    pull = joined[s:, :s] @ np.exp(1j * inner)
    # A gene between opposite clinical variables has no direction; its first neighbour then decides.
    first = np.exp(1j * inner[joined[s:, :s].argmax(axis=1)])
    wanted = np.angle(pull + 1e-3 * first)
    order, m = np.argsort(wanted, kind="stable"), len(wanted)
    place = np.empty(m)
    place[order] = 2 * np.pi * np.arange(m) / max(m, 1)
    place += np.angle(np.sum(np.exp(1j * (wanted - place)))) if m else 0.0
    angle = np.concatenate([inner, place])
    return np.repeat([0.5, 1.0], [s, m])[:, None] * np.column_stack([np.sin(angle), np.cos(angle)])


def _mark_query(ax: Axes, query: Sequence[str]) -> None:
    for text in ax.texts:
        if text.get_text() in query:
            text.set_fontweight("bold")
            if (box := text.get_bbox_patch()) is not None:
                box.set(facecolor=_QUERY, linewidth=2.0)


def _draw_intervals(tables: Tables) -> Figure:
    """80 % intervals of the largest associations at the compared q, and the ends that the exact sampler gives."""
    studies = studies_of(tables)
    figure = Figure(figsize=(max(7.0, 3.8 * len(studies)), 4.6), layout="constrained")
    for ax, study in zip(figure.subplots(1, len(studies), squeeze=False)[0], studies, strict=True):
        table = where(tables["entries"], study=study)
        size = table.assign(size=table["mean"].abs()).groupby(["row", "column"])["size"].max()
        chosen = size.sort_values(ascending=False).index[:_MOST_LINES].tolist()
        for k, q in enumerate(COMPARED):
            rows = where(table, q=q).set_index(["row", "column"]).reindex(chosen)
            y = np.arange(len(chosen)) + 0.18 * (2 * k - 1)
            ax.hlines(y, rows["lower"], rows["upper"], color=LINES[k], lw=2)
            ax.plot(rows["mean"], y, ls="", marker=MARKERS[k], ms=4.5, color=LINES[k])
            for end in ("exact_lower", "exact_upper"):
                ax.plot(rows[end], y, ls="", marker="|", ms=8, mew=1.2, color="black")
        ax.axvline(0, color=NEUTRAL, lw=0.6)
        set_names(ax.yaxis, [f"{row} – {column}" for row, column in chosen], most=_MOST_LINES)
        ax.invert_yaxis()
        ax.set_xlabel("association")
        open_frame(ax)
        set_title(ax, study)
    handles: list[Any] = [
        Line2D(
            [], [], color=LINES[k], marker=MARKERS[k], ms=4.5, lw=2, label=f"q = {q:g}: mean, {100 * EDGE:g} % interval"
        )
        for k, q in enumerate(COMPARED)
    ]
    handles.append(Line2D([], [], ls="", marker="|", ms=8, mew=1.2, color="black", label="ends by the exact sampler"))
    _legend_of_figure(figure, handles)
    return figure


def _draw_across_q(tables: Tables) -> Figure:
    """95 % intervals of the strongest entries at every q."""
    studies = studies_of(tables)
    figure = Figure(figsize=(11, 2.4 * len(studies) + 0.4), layout="constrained")
    axes = figure.subplots(len(studies), STRONGEST, squeeze=False, sharex=True, sharey="row")
    for row, study in zip(axes, studies, strict=True):
        table = where(tables["strongest"], study=study)
        pairs = list(table.groupby(["row", "column"], sort=False))
        for ax, ((name, other), part) in zip(row, pairs, strict=True):
            for k, prefix in enumerate(("", "exact_")):
                low, middle, high = (part[f"{prefix}{end}"] for end in ("lower", "median", "upper"))
                style = {"color": (LINES[0], "black")[k], "fmt": MARKERS[k], "ms": 4.5, "capsize": 2, "lw": (1.8, 1)[k]}
                at = part["q"] + 0.012 * (2 * k - 1)
                ax.errorbar(at, middle, yerr=[middle - low, high - middle], **style)
            ax.axhline(0, color=NEUTRAL, lw=0.6)
            ax.set_xticks(EXPONENTS)
            open_frame(ax)
            set_title(ax, f"{name} – {other}")
        row[0].set_ylabel(f"{study}\nassociation", fontsize=SMALL)
    for ax in axes[-1]:
        ax.set_xlabel("exponent q")
    flow = Line2D(
        [], [], color=LINES[0], marker=MARKERS[0], ms=4.5, lw=1.8, label=f"flow: median, {100 * WIDE:g} % interval"
    )
    exact = Line2D([], [], color="black", marker=MARKERS[1], ms=4.5, lw=1, label="exact sampler")
    _legend_of_figure(figure, [flow, exact])
    return figure
