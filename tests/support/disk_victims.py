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
from ggmflow.evidence import evidence
from ggmflow.report import page
from ggmflow.storage.archive import write
from ggmflow.train import loop as train
from ggmflow.views import export
from tests.support.disk import KINDS, Victim, replace_functions, try_all


def victims() -> dict[str, Victim]:
    """What this package writes, of each kind one; files of `fit_many` are written as models are, HDF5 by itself."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4))
    table = pd.DataFrame({"row": "a", "column": list("bcd"), "association": [0.3, -0.2, 0.1], "edge": True})
    texts = ["old " * 5000, "new " * 6000]

    def untrained(flow: Any, *args: Any, **options: Any) -> train.Trained:
        return train.Trained(flow, {}, [train.Report(25, 25, 0.0, 1.0, 0)], "finished")

    replace_functions(estimator, train=untrained)
    models = [gf.GraphicalFlow(lam=lam, q=1.0, random_state=0, progress=False).fit(X) for lam in (3.0, 2.0)]
    for model in models:
        model._chosen()
    save, weights = gf.GraphicalFlow.save, [rng.normal(size=3000) for _ in range(2)]

    def checkpoint(path: Path, new: bool) -> None:
        train._save_checkpoint(path, {"of": new}, [weights[new]], [train.Report(25, 25, 0.0, 1.0, 0)], (0.0, 1))

    def fit(model: gf.GraphicalFlow, scatter: Scatter, place: Path) -> None:
        new = model.lam == 2.0
        checkpoint(place / run_record.CHECKPOINT, new)
        vars(model).update(vars(models[new]))

    def fit_run(place: Path, new: bool, **options: bool) -> None:
        model = gf.GraphicalFlow(lam=2.0 if new else 3.0, q=1.0, random_state=0, progress=False)
        run.fit_run(model, scatter, place / "run", {"file": "x.csv", "sha256": "0"}, "ggmflow fit x.csv", **options)

    scatter = Scatter.from_data(X)
    # What computes has done so above: nothing but writing is left. A run's model is small, its own victim is not.
    replace_functions(run, _fit=fit, entry_table=lambda post: table, load_run=lambda path: None)
    replace_functions(page, collect=lambda *args: None, render=lambda model, *args: texts[model.lam == 2.0])
    replace_functions(
        export,
        entry_table=lambda post, *args: table.assign(mean=float(post), **dict.fromkeys(_SHARED, 0.0)),
        describe=lambda post, table: {"condition": post},
        graphml=lambda post, *args: texts[post].encode(),
    )
    replace_functions(
        gf.GraphicalFlow,
        posterior=lambda self: None,
        save=lambda self, path: write(path, {"lam": self.lam}, {"few": weights[0][:10]}),
    )

    def exported(format: str) -> Victim:
        name = export.FORMATS[format][0]
        return Victim(lambda place, new: export.export(new, place / name, format), (name,))  # pyright: ignore

    results = tuple(f"run/{name}" for name in (run_record.MODEL, run_record.EDGES, run_record.README))
    return {
        "model": Victim(lambda place, new: save(models[new], place / "model"), ("model",)),
        "checkpoint": Victim(lambda place, new: checkpoint(place / "checkpoint", new), ("checkpoint",)),
        "report": Victim(lambda place, new: gf.write_report(models[new], place / "report.html"), ("report.html",)),
        **{format: exported(format) for format in ("csv", "json", "graphml")},
        "prior": Victim(lambda place, new: evidence._keep(place / "prior", {"h": weights[new]}), ("prior",)),
        "new run": Victim(
            lambda place, new: fit_run(place, True) if new else None,
            results,
            lambda place: fit_run(place, True, resume=True),
        ),
        "run replaced": Victim(
            lambda place, new: fit_run(place, new, force=new),
            results,
            lambda place: fit_run(
                place, True, resume=(place / "run" / run_record.NEXT / run_record.RECORD).exists(), force=False
            ),
        ),
    }


_SHARED = ("lam", "q", "temperature", "level", "rule")


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
