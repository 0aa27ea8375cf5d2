"""A real table from data to a report: the diabetes table of scikit-learn, 442 patients."""

import time
import warnings
from pathlib import Path

import pandas as pd
from rich.console import Console
from sklearn.datasets import load_diabetes

from ggmflow.cli.screen import print_edges
from ggmflow.data.check import DataWarning
from ggmflow.estimator.graphical_flow import GraphicalFlow, RangeWarning
from ggmflow.posterior.posterior import PoorFitWarning
from ggmflow.posterior.weights import Verdict
from ggmflow.report import write_report
from ggmflow.storage.replace import write_text
from ggmflow.views.export import export_table

TABLE, REPORT = "diabetes.csv", "report.html"
_EDGES_SHOWN = 8


def show_table(console: Console, output: Path, seed: int) -> None:
    """Fit the table at T = 1, print its edges, and write the table and its report.

    Parameters
    ----------
    console
        Where to print.
    output
        Directory of the two files.
    seed
        Random seed of the fit.
    """
    whole = load_diabetes(as_frame=True, scaled=False)["frame"]  # pyright: ignore[reportArgumentType, reportCallIssue]
    table = pd.DataFrame(whole).drop(columns="sex")  # the other columns are measured
    console.print(
        f"[bold]A real table[/bold]  {len(table)} patients, {table.shape[1]} measurements: age, body mass index (bmi), "
        "blood pressure (bp),\nsix of blood serum (s1 to s6), and the progress of diabetes a year later (target).\n"
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        for kind in (DataWarning, RangeWarning, PoorFitWarning):  # report and verdict say what they say
            warnings.simplefilter("ignore", kind)
        with console.status("Fitting the posterior, and choosing λ and q by their evidence"):
            model = GraphicalFlow(temperature=1.0, random_state=seed, progress=False).fit(table)
            post = model.posterior()
            edges = export_table(post)
        how = f"trained for {model.n_iter_} steps" if model.n_iter_ else "not trained: the flow answers as shipped"
        console.print(
            f"Fitted in {time.perf_counter() - start:.0f} s ({how}). Evidence is highest at λ = {post.lam:.2f}, "
            f"q = {post.q:.2f}."
        )
        found = post.diagnostics()
        console.print(found.message, style="green" if found.verdict is Verdict.GOOD else "yellow")
        print_edges(console, edges, _EDGES_SHOWN)
        with console.status("Writing the report"):
            write_text(output / TABLE, table.to_csv(index=False))  # which the report names, and other commands read
            write_report(model, output / REPORT, data_name=TABLE)
