"""Gaussian Bayesian networks with known parameters, and the precision matrix that each of them implies.

    x = Bx + e,  e ~ N(0, D)   ⇒   Ω = (I − B)ᵀ D⁻¹ (I − B),   B_ij the weight of parent j in the regression of x_i

Ω has a nonzero entry where one variable is a parent of the other, or both are parents of a third: the moral graph.
The networks are those of the Bayesian network repository that pgmpy ships as files; only the files are read.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

NETWORKS = ("ecoli70", "magic-niab", "magic-irri", "arth150")


class Network(NamedTuple):
    """A linear Gaussian network.

    Attributes
    ----------
    names : tuple of str
        The d variables.
    weights : (d, d) array
        B: a row holds the weights of a variable's parents.
    variance : (d,) array
        Diagonal of D: of each variable given its parents.
    """

    names: tuple[str, ...]
    weights: Float[np.ndarray, "d d"]
    variance: Float[np.ndarray, " d"]

    def precision(self) -> Float[np.ndarray, "d d"]:
        """Ω of the variables scaled to unit variance, with exact zeros, (d, d)."""
        residual = np.eye(len(self.names)) - self.weights
        Omega = residual.T @ (residual / self.variance[:, None])
        Omega = (Omega + Omega.T) / 2
        sd = np.sqrt(np.diag(np.linalg.inv(Omega)))
        return Omega * np.outer(sd, sd)


def load_network(name: str) -> Network:
    """One of `NETWORKS`.

    Parameters
    ----------
    name
        As in the repository: "ecoli70" (46 genes), "magic-niab" (44 traits and markers of wheat), "magic-irri" (64, of
        rice), "arth150" (107 genes).

    Returns
    -------
    Network

    Raises
    ------
    ImportError
        Without pgmpy, or with a version of it that does not ship the file.
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown network {name!r}: choose one of {', '.join(NETWORKS)}")
    spec = find_spec("pgmpy")  # found, not imported: the files need nothing of the package
    places = (spec.submodule_search_locations if spec else None) or []
    files = [path for place in places if (path := Path(place, "utils", "example_models", f"{name}.json")).exists()]
    if not files:
        raise ImportError(
            f"the network {name!r} comes with pgmpy, which is {'too new or too old' if spec else 'not installed'}: "
            "pip install '.[experiments]' in a clone of the repository"
        )
    return read_network(files[0])


def read_network(path: Path) -> Network:
    """Read a network from pgmpy's JSON: nodes, arcs from parent to child, and for each node weights and variance.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ValueError
        If arcs and parents disagree, or a variance is not positive.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    names = tuple(content["nodes"])
    at = {name: k for k, name in enumerate(names)}
    weights, variance = np.zeros((len(names), len(names))), np.zeros(len(names))
    for child, known in content["cpds"].items():
        variance[at[child]] = known["variance"][0]
        for parent in known["parents"]:
            weights[at[child], at[parent]] = known["coefficients"][parent][0]
    arcs = {(at[parent], at[child]) for parent, child in content["arcs"]}
    parents = {(at[parent], at[child]) for child, known in content["cpds"].items() for parent in known["parents"]}
    if arcs != parents or not np.all(variance > 0):
        raise ValueError(f"{path.name}: arcs and parents must agree, and variances be positive")
    return Network(names, weights, variance)
