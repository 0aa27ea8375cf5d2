"""Data for the script of a page, `page.js`: the content of a report as plain numbers and texts."""

import json
from typing import Any

import numpy as np

from ggmflow.report.content import FIELDS, RULES, Content
from ggmflow.report.svg import frames
from ggmflow.report.table import ROWS, decimals
from ggmflow.report.text import MEASURES, VERDICTS, evidence, trust


def script_data(content: Content) -> dict[str, Any]:
    """Return the data of the script, of types that JSON has.

    Parameters
    ----------
    content
        Content of the report.
    """
    kept, below = content.kept, content.below_best()
    fields: dict[str, Any] = {name: [_four_digits(row) for row in content.field(name)] for name in FIELDS}
    bits = 1 << np.arange(len(RULES))
    fields["edge"] = [(bits @ point.edges[:, kept]).tolist() for point in content.points]
    differences = [np.nan] * len(content.points) if below is None else below.ravel().tolist()
    points = [
        {
            "n_edges": [each.n_edges for each in point.selections],
            "expected_fdr": [round(each.expected_fdr, 4) for each in point.selections],
            "rule": [each.rule for each in point.selections],
            "verdict": point.verdict,
            "verdict_name": VERDICTS[point.verdict],
            "trust": trust(point, content),
            "evidence": evidence(difference),
            "below": round(difference, 3) if np.isfinite(difference) else -1e9,
        }
        for point, difference in zip(content.points, differences, strict=True)
    ]
    return {
        "names": list(content.names),
        "blanket": content.is_blanket,
        "lam": content.lam.tolist(),
        "q": content.q.tolist(),
        "start": list(content.start),
        "measures": list(MEASURES),
        "pairs": np.column_stack([content.first, content.second, content.inside])[kept].tolist(),
        "n_pairs": len(content.first),
        "pair": content.first_curve,
        "rows": ROWS,
        "fields": fields,
        "points": points,
        "decimals": decimals(content),
        "limit": content.limit,
        "widest": content.widest,
        "along": content.along,
        "frames": {name: frame._asdict() for name, frame in frames(content).items()},
    }


def to_json(value: Any) -> str:
    """Return JSON for a script element: ASCII, without < > & that could end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _four_digits(values: np.ndarray) -> list[float | None]:
    """More digits than the page shows; None for values that are not finite."""
    return [_rounded(float(value)) if np.isfinite(value) else None for value in values]


def _rounded(value: float) -> float:
    rounded = float(f"{value:.4g}")
    return 0.9999 if value < 1 <= rounded else rounded  # the page writes ">99 %" for what is not quite certain
