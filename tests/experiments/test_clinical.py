"""Clinical tables: their sizes, categories as numbers, nothing made up; and advice where a package is missing."""

import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from experiments.paper.blanket import clinical
from experiments.paper.blanket.clinical import FORMER, STUDIES, load, pathway_genes
from ggmflow.data.scatter import Scatter

# Rows kept and left out, clinical variables, genes, events among the rows kept. Rows and events were counted in the
# packages' own tables, without the loader; the numbers of genes are the loader's, kept so that a change is noticed.
SIZES = {"breast_cancer": (196, 2, 4, 76, 51), "gse4335": (110, 5, 6, 282, 38), "gse1992": (118, 6, 5, 321, 33)}
NEEDED = {"breast_cancer": ["sksurv"], "gse4335": ["SurvSet", "pygsva"], "gse1992": ["SurvSet", "pygsva"]}


@pytest.fixture(params=STUDIES, scope="module")
def study(request):
    for package in NEEDED[request.param]:
        if find_spec(package) is None:
            pytest.skip(f"the table comes with {package}")
    return request.param, load(request.param)


def survset(name):
    """The table as the package has it."""
    with pytest.warns(DeprecationWarning, match=r"numpy\.core"):
        from SurvSet.data import SurvLoader

        return SurvLoader().load_dataset(ds_name=name)["df"]


def test_sizes(study):
    name, found = study
    n, n_dropped, s, t, events = SIZES[name]
    assert found.table.shape == (n, s + t)
    assert (found.n_dropped, len(found.query)) == (n_dropped, s)
    assert found.table.columns[:s].tolist() == found.query == list(STUDIES[name].clinical)
    assert found.survival.shape == (n, 2)
    assert found.survival["event"].sum() == events


def test_a_flow_can_use_it(study):
    """Complete numbers, different names, no constant column, no column twice: normal scores have rank min(n − 1, d)."""
    _, found = study
    assert np.isfinite(found.table.to_numpy()).all()
    assert all(kind == "float64" for kind in found.table.dtypes)
    scatter = Scatter.from_data(found.table, transform="nonparanormal")
    R = np.corrcoef(scatter.working(found.table).T) - np.eye(scatter.n_features)
    assert np.abs(R).max() < 0.99
    assert np.linalg.matrix_rank(scatter.matrix) == min(scatter.n, scatter.n_features)


def test_clinical_variables_have_the_values_of_their_kind(study):
    _, found = study
    kinds = {"ER": {0, 1}, "metastasis": {0, 1}, "grade": {1, 2, 3}, "nodes": {0, 1, 2}}
    for column in set(found.query) & set(kinds):
        assert set(found.table[column]) <= kinds[column]
        assert found.table[column].nunique() >= 2
    assert found.table["age"].between(20, 100).all()


def test_breast_cancer_row_by_row():
    """Rows are those of the package, in its order; what was not known is gone."""
    datasets = pytest.importorskip("sksurv.datasets")
    X, y = datasets.load_breast_cancer()
    found = load("breast_cancer")
    kept = (X["grade"] != "unkown").to_numpy()  # as the package writes it
    np.testing.assert_array_equal(found.table["204540_at"], X["X204540_at"][kept])
    np.testing.assert_array_equal(found.table["ER"] == 1, X["er"][kept] == "positive")
    np.testing.assert_array_equal(found.table["grade"] == 3, X["grade"][kept] == "poorly differentiated")
    np.testing.assert_array_equal(found.survival["time"], y["t.tdm"][kept])


@pytest.mark.parametrize("name, er", [("gse4335", "fac_er_status"), ("gse1992", "fac_er_positive")])
def test_survset_row_by_row(name, er):
    """The same, and a gene under its present symbol: mTOR was FRAP1."""
    for package in NEEDED[name]:
        pytest.importorskip(package)
    source, found = survset(name), load(name)
    unknown = {"na", "x", "missing"}
    kept = ~source[[c for c in source.columns if c.startswith("fac_")]].astype(str).isin(unknown).any(axis=1)
    assert kept.sum() == len(found.table)
    np.testing.assert_array_equal(found.table["MTOR"], source["num_HS_FRAP1"][kept])
    np.testing.assert_array_equal(found.table["AKT1"], source["num_HS_AKT1"][kept])
    np.testing.assert_array_equal(found.table["ER"], source[er][kept].astype(str) == "1")
    np.testing.assert_array_equal(found.survival, source[["time", "event"]][kept])


def test_genes_of_the_pathway():
    pytest.importorskip("pygsva")
    genes = pathway_genes()
    assert len(genes) == len(set(genes)) == 326
    assert genes == sorted(genes)
    assert {"TP53", "KRAS", "EGFR", "APC", *FORMER} <= set(genes)
    assert not set(FORMER.values()) & set(genes)


def test_unknown_categories_are_missing_values(monkeypatch):
    """A row whose category is not in the list is left out, with its genes and its survival."""
    source = pd.DataFrame(
        {
            "age": [50.0, 60.0, 70.0],
            "er": ["positive", "unknown", "negative"],
            "grade": pd.Categorical(["intermediate"] * 3),
            "size": [1.0, 2.0, 3.0],
        }
    )
    genes = pd.DataFrame({"a": [0.1, 0.2, 0.3]})
    survival = pd.DataFrame({"time": [1.0, 2.0, 3.0], "event": [0, 1, 1]})
    monkeypatch.setattr(clinical, "_read_breast_cancer", lambda: (source, genes, survival))
    found = load("breast_cancer")
    assert found.n_dropped == 1
    assert found.table["a"].tolist() == [0.1, 0.3]
    assert found.table["ER"].tolist() == [1.0, 0.0]
    assert found.survival["time"].tolist() == [1.0, 3.0]
    monkeypatch.setattr(clinical, "_read_breast_cancer", lambda: (source, genes.assign(a=np.nan), survival))
    with pytest.raises(ValueError, match="breast_cancer has gaps in its genes"):
        load("breast_cancer")


def test_missing_packages_and_names_are_told(monkeypatch):
    monkeypatch.setattr(clinical, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs pygsva: pip install '\.\[experiments\]' in a clone"):
        pathway_genes()
    for module in ("sksurv.datasets", "SurvSet.data"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it raises
    with pytest.raises(ImportError, match=r"needs sksurv: pip install '\.\[experiments\]' in a clone"):
        load("breast_cancer")
    with pytest.raises(ImportError, match="needs SurvSet"):
        load("gse1992")
    with pytest.raises(
        ValueError, match="no study is called 'colorectal': choose from breast_cancer, gse4335, gse1992"
    ):
        load("colorectal")
