"""A posterior in one line and as HTML for notebooks."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from ggmflow.posterior.diagnostics import Diagnostics
from ggmflow.posterior.edges import EdgeSelection
from ggmflow.posterior.notebook_html import Level, name_some, notebook_html
from ggmflow.posterior.weights import Verdict

if TYPE_CHECKING:
    from ggmflow.posterior.posterior import Posterior

_LEVELS: dict[Verdict, Level] = {
    Verdict.GOOD: "good",
    Verdict.FAIR: "caution",
    Verdict.POOR: "poor",
    Verdict.MOVING: "caution",
}


def describe_condition(lam: float | None, q: float | None, temperature: float | None) -> str:
    """The condition as a text; values that are None are left out.

    Examples
    --------
    >>> describe_condition(2.0, 0.5, None)
    'λ = 2, q = 0.5'
    """
    condition = {"λ": lam, "q": q, "T": temperature}
    return ", ".join(f"{symbol} = {value:g}" for symbol, value in condition.items() if value is not None)


def describe_variables(names: tuple[str, ...], query: Int[np.ndarray, " s"]) -> str:
    """The number of variables and the first few names of the query."""
    s, d = len(query), len(names)
    shown = ", ".join(names[k] for k in query[:4]) + (", …" if s > 4 else "")
    return f"{f'{d} variables' if s == d else f'the Markov blanket of {s} among {d} variables'} ({shown})"


def posterior_html(post: "Posterior", diagnostics: Diagnostics | None, selection: EdgeSelection | None) -> str:
    """HTML of a posterior for notebooks.

    Parameters
    ----------
    post
        The posterior.
    diagnostics
        Its diagnostics, if they are known without drawing.
    selection
        Its edges, if they are known.
    """
    s, d = len(post.query), len(post.names)
    rows = name_some([post.names[k] for k in post.query])
    facts = {
        "Condition": post.condition_text or "a mixture over λ and q",
        "Variables" if s == d else "Query": rows if s == d else f"{rows}; its Markov blanket among {d} variables",
    }
    if post.scatter is not None:
        facts["Data"] = f"{post.scatter.n_rows:g} rows"
    facts["Draws"] = f"{post.num_draws}"
    if selection is not None:
        n_pairs = int(np.sum(~post.draws.free.diagonal))
        facts["Edges"] = f"{selection.n_edges} of {n_pairs} pairs ({selection.rule})"
    if diagnostics is None:
        return notebook_html("Posterior", facts, "open", "Nothing is drawn yet: the first estimate draws.")
    return notebook_html("Posterior", facts, _LEVELS[diagnostics.verdict], diagnostics.message)
