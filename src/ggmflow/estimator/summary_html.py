"""The view of a model in a notebook: data, ranges, training, choice and a verdict."""

import numpy as np
import pandas as pd
from jaxtyping import Int

from ggmflow.data.scatter import Scatter
from ggmflow.model.conditions import Choice, Ranges
from ggmflow.posterior.notebook_html import Level, name_some, notebook_html
from ggmflow.train.report import MANY_SKIPPED
from ggmflow.train.status import Status


def summary_html(
    title: str,
    scatter: Scatter,
    query: Int[np.ndarray, " s"],
    ranges: Ranges,
    history: pd.DataFrame,
    status: str,
    choice: Choice | None,
) -> str:
    """HTML of a fitted model.

    Parameters
    ----------
    title
        Text of the first line.
    scatter, query, ranges
        Data, columns of the query and ranges of the fit.
    history
        Training: step, elbo, ess, skipped.
    status
        How training ended.
    choice
        λ and q of highest evidence, if they have been found.
    """
    s, d, last = len(query), scatter.n_features, history.iloc[-1]
    variables = f"{d} variables" if s == d else f"the Markov blanket of {s} among {d} variables"
    facts = {
        "Data": f"Fitted to {scatter.n_rows:g} rows of {variables}",
        "Variables" if s == d else "Query": name_some([scatter.names[k] for k in query]),
        "Ranges": ", ".join(
            f"{symbol} {low:.3g} … {high:.3g}" if low < high else f"{symbol} = {low:.3g}"
            for symbol, (low, high) in zip(("λ", "q", "T"), ranges, strict=True)
        ),
        "Training": f"{_training(int(last['step']), status)}; held-out ELBO {last['elbo']:.4g}",
        "Highest evidence": "select() finds it" if choice is None else _choice_text(choice),
    }
    level, verdict = _verdict(status, int(last["step"]), float(last["ess"]), int(last["skipped"]))
    return notebook_html(title, facts, level, verdict)


def unfitted_html(title: str) -> str:
    """HTML of a model before `fit`."""
    return notebook_html(title, {}, "open", "Not trained yet: call fit(X).")


def _training(steps: int, status: str) -> str:
    return f"{steps} steps, {status}" if steps else "none on these data: the flow answers as it was shipped"


def _choice_text(choice: Choice) -> str:
    at = " and ".join(boundary.text() for boundary in choice.at_boundary)
    return f"λ = {choice.lam:.3g}, q = {choice.q:.3g}" + (f", at {at}" if at else "")


def _verdict(status: str, steps: int, ess: float, skipped: int) -> tuple[Level, str]:
    """How training went; each posterior has diagnostics of its own."""
    text = f"{100 * ess:.3g} % of draws are effective, on average over the ranges"
    if skipped > MANY_SKIPPED * steps:
        return "caution", f"Caution: {skipped} steps were skipped; {text}."
    if status == Status.INTERRUPTED:
        return "caution", f"Caution: training was interrupted; {text}."
    if not ess >= 0.01:
        return "poor", f"Poor: {text}. Use posterior(...).refine(), more steps, or narrower ranges."
    if ess < 0.1:
        return "caution", f"Fair: {text}. Check posterior(...).diagnostics()."
    return "good", f"Good: {text}."
