"""Everything that this package writes, tried on a disk that fails at every step (`tests.support.disk`).

python -m tests.support.disk_victims      prints {name: {fault: [number of faults, [what went wrong]]}}
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import ggmflow as gf
from ggmflow.cli import run, run_record
from ggmflow.data.scatter import Scatter
from ggmflow.estimator import graphical_flow as estimator
from ggmflow.evidence.prior import write_prior
from ggmflow.report import page
from ggmflow.storage.archive import write
from ggmflow.train import loop as train
from ggmflow.train.checkpoint import Progress, write_checkpoint
from ggmflow.train.chunk import initial_state
from ggmflow.views import export
from tests.support.disk import KINDS, Victim, replace_functions, try_all

TEXTS = ["old " * 5000, "new " * 6000]
TABLE = pd.DataFrame({"row": "a", "column": list("bcd"), "association": [0.3, -0.2, 0.1], "edge": True})
WEIGHTS = np.random.default_rng(0).normal(size=(2, 3000))
RESULTS = tuple(f"run/{name}" for name in (run_record.MODEL, run_record.EDGES, run_record.README))


def victims() -> dict[str, Victim]:
    """One writer for each kind of file; `fit_many` writes files as models are written, HDF5 writes by itself."""
    scatter = Scatter.from_data(np.random.default_rng(0).normal(size=(20, 4)))
    models, save = fitted_models(scatter), gf.GraphicalFlow.save
    skip_computation(models)

    def fit_run(place: Path, new: bool, **options: bool) -> None:
        model = gf.GraphicalFlow(lam=2.0 if new else 3.0, q=1.0, random_state=0, progress=False)
        run.fit_run(model, scatter, place / "run", {"file": "x.csv", "sha256": "0"}, "ggmflow fit x.csv", **options)

    def exported(format: str) -> Victim:
        name = export.FORMATS[format][0]
        return Victim(lambda place, new: export.export(new, place / name, format), (name,))

    return {
        "model": Victim(lambda place, new: save(models[new], place / "model"), ("model",)),
        "checkpoint": Victim(lambda place, new: save_checkpoint(place / "checkpoint", new), ("checkpoint",)),
        "report": Victim(lambda place, new: gf.write_report(models[new], place / "report.html"), ("report.html",)),
        **{format: exported(format) for format in ("csv", "json", "graphml")},
        "prior": Victim(lambda place, new: write_prior(place / "prior", {"h": WEIGHTS[new]}), ("prior",)),
        "new run": Victim(
            lambda place, new: fit_run(place, True) if new else None,
            RESULTS,
            lambda place: fit_run(place, True, resume=True),
        ),
        "run replaced": Victim(
            lambda place, new: fit_run(place, new, force=new),
            RESULTS,
            lambda place: fit_run(
                place, True, resume=(place / "run" / run_record.NEXT / run_record.RECORD).exists(), force=False
            ),
        ),
    }


def fitted_models(scatter: Scatter) -> list[gf.GraphicalFlow]:
    """An old and a new model, not trained, whose λ and q are chosen."""

    def untrained(flow: Any, *args: Any, **options: Any) -> train.Trained:
        return train.Trained(flow, {}, [train.Report(25, 25, 0.0, 1.0, 0)], "finished")

    replace_functions(estimator, train=untrained)
    models = [gf.GraphicalFlow(lam=lam, q=1.0, random_state=0, progress=False).fit(scatter) for lam in (3.0, 2.0)]
    for model in models:
        _ = model.lam_  # chooses
    return models


def save_checkpoint(path: Path, new: bool) -> None:
    """Write a checkpoint of the old or of the new training."""
    history = [train.Report(25, 25, 0.0, 1.0, 0)]
    write_checkpoint(path, {"of": new}, Progress(initial_state(WEIGHTS[new]), WEIGHTS[new], {}, history, 0.0, 1))


def skip_computation(models: list[gf.GraphicalFlow]) -> None:
    """Replace all functions that compute, so that only writing is left; models of runs become small."""

    def fit(model: gf.GraphicalFlow, scatter: Scatter, place: Path) -> None:
        new = model.lam == 2.0
        save_checkpoint(place / run_record.CHECKPOINT, new)
        vars(model).update(vars(models[new]))

    shared = dict.fromkeys(("lam", "q", "temperature", "level", "rule"), 0.0)
    replace_functions(run, _fit=fit, export_table=lambda post: TABLE, load_run=lambda path: None)
    replace_functions(page, collect=lambda *args: None, render=lambda model, *args: TEXTS[model.lam == 2.0])
    replace_functions(
        export,
        export_table=lambda post, *args: TABLE.assign(mean=float(post), **shared),
        describe=lambda post, table: {"condition": post},
        graphml=lambda post, *args: TEXTS[post].encode(),
    )
    replace_functions(
        gf.GraphicalFlow,
        posterior=lambda self: None,
        save=lambda self, path: write(path, {"lam": self.lam}, {"few": WEIGHTS[0][:10]}),
    )


def main() -> None:
    """Try all faults; one JSON object on standard output."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, victim in victims().items():
            for kind in KINDS:
                place = Path(directory, f"{name}-{kind}")
                place.mkdir()
                found.setdefault(name, {})[kind] = try_all(victim, kind, place)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
