"""Real tables of a few clinical variables and many genes: three breast cancer studies from the package registry.

They take the place of the paper's colorectal table, which is not public. scikit-survival and SurvSet ship them, pygsva
ships the list of genes that KEGG calls "Pathways in cancer". All processing:

- Clinical variables become numbers: a status is 0 or 1, a stage or grade its rank.
- Rows that lack a clinical variable are left out: 2 of 198, 5 of 115, 6 of 124. No gene lacks a value. (Expected
  statistics by EM would keep these rows, but with more genes than rows they would rest on almost no data.)
- The two tables with more than ten thousand genes are cut down to the pathway, 326 symbols. Genes are called by their
  present symbols; nine of them have an older one in these tables (`FORMER`).
- Columns that repeat others are left out: grade and size come twice. So is histology, which is no rank and the same
  ("Ductal") for 101 of 115 patients.
- Survival is kept apart, as the data have it: times are censored, and a Gaussian model of them would take the end of
  observation for a death.

Skew and ranks are left to transform="nonparanormal", which uses only the order within each column.
"""

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

Frame = Any  # a DataFrame or Series: their annotations leave open what a column is

PATHWAY = "Pathways in cancer"
# Present symbol of a gene of the pathway, and the one these tables know it by.
FORMER = {
    "CXCL8": "IL8",
    "ELOB": "TCEB2",
    "ELOC": "TCEB1",
    "MECOM": "EVI1",
    "MTOR": "FRAP1",
    "NOS2": "NOS2A",
    "PRKCB": "PRKCB1",
    "VEGFD": "FIGF",
    "XIAP": "BIRC4",
}
_NUMBER: dict[str, float] = {}  # a column of numbers
_STATUS = {"0": 0.0, "1": 1.0}
_RANKS = {str(rank): float(rank) for rank in range(5)}


class Column(NamedTuple):
    """A clinical variable: its column in the source, and the number of each category; others are missing values."""

    source: str
    codes: Mapping[str, float] = _NUMBER


class Study(NamedTuple):
    """Source of a table.

    Attributes
    ----------
    package
        Of the registry.
    about
        Description of the study.
    clinical
        Clinical variables by name.
    """

    package: str
    about: str
    clinical: Mapping[str, Column]


STUDIES = {
    "breast_cancer": Study(
        "scikit-survival",
        "node-negative breast cancer (Desmedt et al. 2007), the 76 probes of a signature",
        {
            "age": Column("age"),
            "ER": Column("er", {"negative": 0.0, "positive": 1.0}),
            "grade": Column("grade", {"well differentiated": 1.0, "intermediate": 2.0, "poorly differentiated": 3.0}),
            "size": Column("size"),
        },
    ),
    "gse4335": Study(
        "SurvSet",
        "breast cancer (GSE4335), genes of KEGG's pathways in cancer",
        {
            "age": Column("num_age"),
            "ER": Column("fac_er_status", _STATUS),
            "grade": Column("fac_grade", _RANKS),
            "size": Column("fac_tumor_size", _RANKS),
            "nodes": Column("fac_node_status", _RANKS),
            "metastasis": Column("fac_metastasis", _STATUS),
        },
    ),
    "gse1992": Study(
        "SurvSet",
        "breast cancer (GSE1992; some samples are metastases), genes of KEGG's pathways in cancer",
        {
            "age": Column("num_age"),
            "ER": Column("fac_er_positive", _STATUS),
            "grade": Column("fac_grade", _RANKS),
            "size": Column("fac_size", _RANKS),
            "nodes": Column("fac_node_status", _STATUS),
        },
    ),
}


class Clinical(NamedTuple):
    """A cleaned table.

    Attributes
    ----------
    table : (n, d) DataFrame
        Numbers without a gap, clinical variables first.
    query : list of str
        Names of the clinical variables.
    survival : (n, 2) DataFrame
        time and event (0 or 1) of the same rows.
    n_dropped : int
        Rows that were left out.
    """

    table: pd.DataFrame
    query: list[str]
    survival: pd.DataFrame
    n_dropped: int


def load(name: str) -> Clinical:
    """Read a study and clean it.

    Parameters
    ----------
    name
        One of `STUDIES`.

    Raises
    ------
    ImportError
        If a package of the extra `experiments` is not installed.
    ValueError
        If a column has unexpected content.
    """
    if name not in STUDIES:
        raise ValueError(f"no study is called {name!r}: choose from {', '.join(STUDIES)}")
    study = STUDIES[name]
    source, genes, survival = _read_breast_cancer() if name == "breast_cancer" else _read_survset(name)
    clinical = pd.DataFrame({label: _numbers(source, column) for label, column in study.clinical.items()})
    complete = clinical.notna().all(axis=1)
    table: Frame = pd.concat([clinical, genes], axis=1)[complete].reset_index(drop=True).astype(float)
    if table.isna().to_numpy().any() or table.columns.has_duplicates:
        raise ValueError(f"{name} has gaps in its genes or names that repeat: another version of {study.package}?")
    return Clinical(
        table, list(study.clinical), survival[complete].reset_index(drop=True), int(np.sum(~complete.to_numpy()))
    )


def _numbers(source: Frame, column: Column) -> Frame:
    """A clinical variable as numbers, NaN where it is not known."""
    values = source[column.source]
    return (values.astype(str).map(dict(column.codes)) if column.codes else values).astype(float)


def _read_breast_cancer() -> tuple[Frame, Frame, Frame]:
    try:
        from sksurv.datasets import load_breast_cancer  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(_advice("sksurv")) from error
    table, outcome = load_breast_cancer()
    table = table.reset_index(drop=True)
    probes = [label for label in table.columns if label.startswith("X")]  # an R name cannot begin with a digit
    genes = table[probes].rename(columns=lambda label: label[1:])
    return table, genes, pd.DataFrame({"time": outcome["t.tdm"], "event": outcome["e.tdm"].astype(int)})


def _read_survset(name: str) -> tuple[Frame, Frame, Frame]:
    try:
        from SurvSet.data import SurvLoader  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(_advice("SurvSet")) from error
    loader = SurvLoader()
    with warnings.catch_warnings():
        # Its files were written with an older NumPy, whose modules had other names.
        warnings.filterwarnings("ignore", "numpy.core", DeprecationWarning)
        table = loader.load_dataset(ds_name=name)["df"].reset_index(drop=True)
    columns = {}
    for symbol in pathway_genes():
        for known in (symbol, FORMER.get(symbol)):
            if f"num_HS_{known}" in table.columns:
                columns[symbol] = table[f"num_HS_{known}"]
                break
    return table, pd.DataFrame(columns), table[["time", "event"]]


def pathway_genes() -> list[str]:
    """Symbols of the genes in KEGG's "Pathways in cancer", sorted, from the table of pathways that pygsva ships."""
    spec = find_spec("pygsva")  # not imported: only its file is wanted
    if spec is None or spec.origin is None:
        raise ImportError(_advice("pygsva"))
    pathways = pd.read_csv(Path(spec.origin).parent / "data" / "hsko.csv", dtype=str)
    return sorted(set(pathways.loc[pathways["Annot"] == PATHWAY, "GeneID"]))


def _advice(name: str) -> str:
    return f"this experiment needs {name}: pip install '.[experiments]' in a clone of the repository"
