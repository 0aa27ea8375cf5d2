"""What is said of the blanket, from its tables."""

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from experiments.paper.blanket import clinical
from experiments.paper.blanket.figures import studies_of, where
from experiments.paper.blanket.work import COMPARED, EDGE, EXPONENTS, RULES, STRONGEST, WIDE
from experiments.paper.reference import LIMIT
from experiments.paper.text import Frame, Tables, filled, joined, markdown, percent, span


def section(tables: Tables) -> str:
    """Its part of the page of results."""
    parts = [
        _said_of_data(tables),
        _said_of_choice(tables),
        "![Evidence of λ for each q](assets/results/blanket/evidence.png)",
        _said_of_agreement(tables),
        "![Quantile errors of the flow](assets/results/blanket/agreement.png)",
        _said_of_networks(tables),
        *(
            f"![Networks at q = 1 and q = 0.6, {study}](assets/results/blanket/network_{study}.png)"
            for study in studies_of(tables)
        ),
        "![80 % intervals of the largest associations](assets/results/blanket/intervals.png)",
        _said_of_strongest(tables),
        "![95 % intervals of the strongest entries across q](assets/results/blanket/across_q.png)",
    ]
    return "\n\n".join(parts) + "\n"


def _said_of_data(tables: Tables) -> str:
    rows = [
        (
            f"`{each.study}`",
            clinical.STUDIES[each.study].package,
            f"{each.n} ({each.n_dropped} left out)",
            ", ".join(clinical.STUDIES[each.study].clinical),
            f"{each.n_genes}",
            f"{each.entries}",
            f"{each.lam_low:.3g} … {each.lam_high:.3g}",
            f"{each.seconds:.0f}",
        )
        for each in tables["studies"].itertuples()
    ]
    header = ("study", "package", "rows", "clinical variables", "genes", "free entries", "range of λ", "seconds to fit")
    words = f"""The paper asks for the neighbours of a few clinical variables among hundreds of genes in a colorectal
    table that is not public. Here are breast cancer studies that packages of the registry ship, with the same kind of
    question: the clinical variables are the query, all genes the rest. Two of them come with more than ten thousand
    genes, of which those of KEGG's “Pathways in cancer” are kept. Stages and grades are ranks, rows that lack a
    clinical variable are left out, survival stays out of the model because its times are censored, and every column is
    replaced by its normal scores (`transform="nonparanormal"`). `experiments.paper.blanket.clinical` has all of
    it. One flow is fitted to each table, for q from {min(EXPONENTS):g} to {max(EXPONENTS):g} at T = 1."""
    return f"## Clinical variables among genes\n\n{filled(words)}\n\n{markdown(header, rows)}"


def _said_of_choice(tables: Tables) -> str:
    choices, rows = tables["choices"], []
    for study in studies_of(tables):
        best = where(choices, study=study, rule="conditional")["value"].max()
        for q in EXPONENTS:
            found = {rule: where(choices, study=study, q=q, rule=rule).iloc[0] for rule in RULES}
            below = best - found["conditional"]["value"]
            lams = [f"{found[rule]['lam']:.1f}{' (end)' * bool(found[rule]['at_end'])}" for rule in RULES]
            rows.append((f"`{study}`", f"{q:g}", *lams, f"{below:.1f}"))
    header = ("study", "q", *(f"λ by evidence of {words}" for words in list(RULES.values())[:2]))
    header = (*header, "λ by the published quantity", "nats below the best q")
    ends = int(where(choices, rule="conditional")["at_end"].sum())
    stakes = _stakes(tables)
    words = f"""**Which λ?** The evidence of all data is a product: that of the genes alone, which depends on λ through
    the covariance among them, and that of the clinical variables given the genes. The first part is none of the
    query's business. At q = 1 the λ of all data is {span(stakes["ratio"], ".2f")} times that of the clinical variables
    given the genes; there the part of the genes is {span(stakes["genes"], ".0f")} nats higher, and that of the
    clinical variables {span(stakes["clinical"], ".0f")} nats lower. The second part chooses λ here, for each q by a
    parabola through the three best points of a grid. {_told_of_ends(ends)} The published quantity (ELBO with the
    constants of the off-diagonal alone) has no part for the genes either. {_told_of_exponents(tables)}"""
    return f"{filled(words)}\n\n{markdown(header, rows)}"


def _told_of_ends(ends: int) -> str:
    return "It is highest inside the fitted range everywhere." if not ends else f"{ends} of these are at an end of it."


def _stakes(tables: Tables) -> Frame:
    """At q = 1, from the λ of the clinical variables given the genes to that of all data: how far each part moves."""
    rows = []
    for study in studies_of(tables):
        line = where(tables["evidence"], study=study, q=1.0).sort_values("lam")
        own, full = (
            where(tables["choices"], study=study, q=1.0, rule=rule).iloc[0]["lam"] for rule in ("conditional", "full")
        )
        clinical_part = CubicSpline(np.log(line["lam"]), line["conditional"])
        genes_part = CubicSpline(np.log(line["lam"]), line["full"] - line["conditional"])
        at = np.log([own, full])
        rows.append((study, full / own, np.ptp(genes_part(at)), np.ptp(clinical_part(at))))
    return pd.DataFrame(rows, columns=["study", "ratio", "genes", "clinical"])


def _told_of_exponents(tables: Tables) -> str:
    """How much the evidence says about q."""
    found = []
    for study in studies_of(tables):
        line = where(tables["choices"], study=study, rule="conditional")
        best = line.loc[line["value"].idxmax()]
        found.append(f"q = {best['q']:g} ({np.ptp(line['value']):.1f} nats above the worst) in `{study}`")
    return f"Of the five q it prefers {joined(found)}."


def _said_of_agreement(tables: Tables) -> str:
    points, chains = tables["points"], tables["chains"]
    rows = []
    for each in points.itertuples():
        run = where(chains, study=each.study, q=float(each.q), sampler="exact").iloc[0]
        refined = "" if np.isnan(each.refined_error) else f", refined {each.refined_error:.3f}"
        rows.append(
            (
                f"`{each.study}`",
                f"{each.q:g}",
                f"{each.lam:.1f}",
                f"{each.error:.3f}{refined}",
                f"{each.largest:.2f} ({each.worst})",
                f"{each.own_error:.3f}",
                f"{each.ess:.1%}{' (weighted)' * bool(each.weighted)}",
                f"{run['rhat']:.3f} ({run['share_above']:.1%})",
                f"{run['ess_min']:,.0f}",
                f"{run['seconds']:.0f}",
            )
        )
    header = (
        "study",
        "q",
        "λ",
        "flow's error, sd",
        "worst entry",
        "exact sampler's own",
        "effective draws of the flow",
    )
    header = (*header, "exact: largest R̂ (share above 1.01)", "exact: smallest ESS", "seconds")
    beyond = points[points["error"] > LIMIT]
    outcome = f"""At all {len(points)} points the mean error is at most {points["error"].max():.3f} sd, so draws of the
    flow are used throughout, weighted where the table says so, and none are refined."""
    if len(beyond):
        outcome = f"""At {len(beyond)} of {len(points)} points the mean error is above {LIMIT:g} sd; there the numbers
        below come from refined draws, whose error is at most {beyond["refined_error"].max():.3f}."""
    exact, worst = where(chains, sampler="exact"), points.loc[points["largest"].idxmax()]
    words = f"""**Is it right?** At the chosen λ of every q the exact blanket sampler runs beside the flow, from starts
    that the flow has no part in. {outcome} This is a mean over hundreds of entries; the worst single one is off by
    {span(points["largest"], ".2f")} sd, largest for {worst["worst"]} in `{worst["study"]}` at q = {worst["q"]:g}.
    The chains of the exact sampler have R̂ up to {exact["rhat"].max():.3f} over
    all entries and at least {exact["ess_min"].min():,.0f} effective draws, and differ among themselves by
    {span(points["own_error"], ".3f")} sd. Its seconds are for one (λ, q), compilation included; the flow has them
    all after one fit. As second referee at q = 1 stands the Gibbs sampler of Kaufmann et al. (2015)
    (`baselines.blanket_gibbs`), whose draws share no code with the first:"""
    return f"{filled(words)}\n\n{markdown(header, rows)}\n\n{_told_of_kaufmann(tables)}"


def _told_of_kaufmann(tables: Tables) -> str:
    rows, far = [], []
    for each in tables["kaufmann"].itertuples():
        run = where(tables["chains"], study=each.study, sampler="Kaufmann").iloc[0]
        chance = float(np.hypot(each.own_error, each.exact_own_error))
        far.append(each.exact_error / chance)
        rows.append(
            (
                f"`{each.study}`",
                f"{each.lam:.1f}",
                f"{each.error:.3f}",
                f"{each.exact_error:.3f}",
                f"{chance:.3f}",
                f"{run['rhat']:.3f} ({run['share_above']:.1%})",
                f"{run['ess_min']:,.0f}",
                f"{run['seconds']:.0f}",
            )
        )
    header = ("study", "λ", "flow − Kaufmann, sd", "exact − Kaufmann, sd", "expected of the last by chance")
    header = (*header, "Kaufmann: largest R̂ (share above 1.01)", "smallest ESS", "seconds")
    verdict = "as much as their own errors explain" if max(far) < 1.25 else "more than their own errors explain"
    words = f"""The two samplers differ by {span(tables["kaufmann"]["exact_error"], ".3f")} sd,
    {span(np.array(far), ".2f")} times what chance would do: {verdict}."""
    return f"{markdown(header, rows)}\n\n{filled(words)}"


def _said_of_networks(tables: Tables) -> str:
    points, rows = tables["points"], []
    for each in points[points["q"].isin(COMPARED)].itertuples():
        same = f"{each.edges_both} of {each.edges_exact}"
        rows.append((f"`{each.study}`", f"{each.q:g}", f"{each.lam:.1f}", f"{each.edges}", same, each.draws))
    header = ("study", "q", "λ", f"edges ({percent(EDGE)} intervals)", "of the exact sampler's edges found", "draws")
    told, exactly = (_where(_fewer_edges(tables, column)) for column in ("edges", "edges_exact"))
    words = f"""**Networks.** A pair is an edge if its {percent(EDGE)} interval excludes zero, as in the paper. The
    network at q = 0.6 has fewer edges than that at q = 1 {told} by the flow, {exactly} by the exact
    sampler. Each q has its own λ here. Nothing is known of the
    truth in these tables, so this compares penalties and does not say which network is better. An association is a
    partial correlation between two clinical variables, and the weight of a gene in the regression of a clinical
    variable on everything else. The largest at q = 1: {_largest(tables)}."""
    return f"{filled(words)}\n\n{markdown(header, rows)}"


def _fewer_edges(tables: Tables, column: str = "edges") -> Frame:
    """Whether the network at the lowest q has fewer edges, by study."""
    wide = _edges(tables, column)
    return wide[min(COMPARED)] < wide[max(COMPARED)]


def _edges(tables: Tables, column: str) -> Frame:
    """Number of edges by study and q."""
    return tables["points"].pivot_table(index="study", columns="q", values=column).reindex(studies_of(tables))


def _where(holds: Frame) -> str:
    """In which studies something holds, in words."""
    if holds.all() or not holds.any():
        return "in all of them" if holds.all() else "in none of them"
    return f"in {joined([f'`{study}`' for study in holds.index[holds]])} alone"


def _largest(tables: Tables) -> str:
    """The largest association of each study at q = 1, in words."""
    found = []
    for study in studies_of(tables):
        table = where(tables["entries"], study=study, q=1.0)
        top = table.loc[table["mean"].abs().idxmax()]
        interval = f"[{top['lower']:+.2f}, {top['upper']:+.2f}]"
        found.append(f"{top['row']} – {top['column']} in `{study}`, {top['mean']:+.2f} {interval}")
    return joined(found)


def _said_of_strongest(tables: Tables) -> str:
    table, rows = tables["strongest"], []
    for (study, row, column), part in table.groupby(["study", "row", "column"], sort=False):
        cells = []
        for q in EXPONENTS:
            each = where(part, q=q).iloc[0]
            cells.append(f"{each['median']:+.2f} [{each['lower']:+.2f}, {each['upper']:+.2f}]")
        rows.append((f"`{study}`", f"{row} – {column}", *cells))
    header = ("study", "pair", *(f"q = {q:g}" for q in EXPONENTS))
    change = _change_of_size(tables)
    larger, wider = int((change["size"] > 0).sum()), int((change["width"] > 0).sum())
    words = f"""**The strongest entries.** The {STRONGEST} pairs of largest |association| at q = 1 in each study, with
    their {percent(WIDE)} intervals at every q, each at its own λ. From q = 1 to q = 0.6 the median of {larger} of
    these {len(change)} pairs moves away from zero and the interval of {wider} gets wider. Ends of intervals differ from
    the exact sampler's by {_distance_of_ends(tables):.3f} on average, {_share_of_width(tables):.1%} of their width."""
    return f"{filled(words)}\n\n{markdown(header, rows)}"


def _change_of_size(tables: Tables) -> Frame:
    """Change of |median| and of the interval's width from q = 1 to the lowest q, a row for each pair."""
    table = tables["strongest"]
    table = table.assign(size=table["median"].abs(), width=table["upper"] - table["lower"])
    one, low = (where(table, q=q).set_index(["study", "row", "column"])[["size", "width"]] for q in COMPARED)
    return low - one


def _distance_of_ends(tables: Tables) -> float:
    table = tables["strongest"]
    return float(np.mean([np.abs(table[end] - table[f"exact_{end}"]) for end in ("lower", "upper")]))


def _share_of_width(tables: Tables) -> float:
    table = tables["strongest"]
    return _distance_of_ends(tables) / float(np.mean(table["exact_upper"] - table["exact_lower"]))


def verdicts(tables: Tables) -> pd.DataFrame:
    """Published and measured, a row for each claim."""
    points, kaufmann = tables["points"], tables["kaufmann"]
    beyond = int((points["error"] > LIMIT).sum())
    final = points["refined_error"].fillna(points["error"]).max()
    fewer, change = _fewer_edges(tables), _change_of_size(tables)
    counts = [
        "; ".join(f"{study} {row[max(COMPARED)]:.0f} → {row[min(COMPARED)]:.0f}" for study, row in wide.iterrows())
        for wide in (_edges(tables, "edges"), _edges(tables, "edges_exact"))
    ]
    larger = int((change["size"] > 0).sum())
    rows = [
        (
            "blanket: quantiles of the flow beside the exact sampler's, sd",
            "not checked",
            f"{span(points['error'], '.3f')} at {len(points)} points; {beyond} refined",
            "agree" if final <= LIMIT else f"off by up to {final:.2f}",
        ),
        (
            "blanket: the same beside the sampler of Kaufmann et al., q = 1",
            "not checked",
            f"{span(kaufmann['error'], '.3f')} at {len(kaufmann)} points",
            "agree" if kaufmann["error"].max() <= LIMIT else f"off by up to {kaufmann['error'].max():.2f}",
        ),
        (
            f"blanket: edges by {percent(EDGE)} intervals at q = 1 → q = 0.6",
            "a figure (colorectal table, not public)",
            f"{counts[0]} (exact sampler: {counts[1]})",
            f"sparser at q = 0.6 in {int(fewer.sum())} of {len(fewer)} tables",
        ),
        (
            f"blanket: {percent(WIDE)} intervals of the four strongest entries, q = 1 → q = 0.6",
            "a figure (the same table)",
            f"median away from zero for {larger} of {len(change)}",
            "less shrinkage at small q" if larger == len(change) else f"less shrinkage for {larger} of {len(change)}",
        ),
    ]
    return pd.DataFrame(rows, columns=["what", "published", "ours", "verdict"])
