"""Command line of `experiments.pretrain`: `train` the network, `measure` what it reaches."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from experiments.pretrain.measuring import measure, show, write_table
from experiments.pretrain.training import train
from ggmflow.flow.structured_network import arrays_of_network, network_from_arrays

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "src" / "ggmflow" / "flow" / "structured_network.npz"
TABLE = ROOT / "docs" / "tables" / "pretrained.csv"
STATE = Path(__file__).parent / "state.npz"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and run a command."""
    parser = argparse.ArgumentParser(prog="python -m experiments.pretrain", description=__doc__)
    commands = parser.add_subparsers(required=True)
    add_train(commands.add_parser("train", help="begin training, or continue it"))
    add_measure(commands.add_parser("measure", help="gaps and effective sample sizes without training on a table"))
    options = parser.parse_args(arguments)
    options.run(options)


def add_train(parser: argparse.ArgumentParser) -> None:
    """Options of `train`."""
    parser.add_argument("--chunks", type=int, required=True, help="train until so many chunks are done in all")
    first = "chunk from which the learning rate falls, to zero at the last one (default: %(default)s)"
    parser.add_argument("--first", type=int, default=0, help=first)
    parser.add_argument("--rate", type=float, default=3e-3, help="first learning rate (default: %(default)s)")
    stored = "file that training continues from, if it exists, and is stored in (default: %(default)s)"
    parser.add_argument("--state", type=Path, default=STATE, help=stored)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="where to write the weights at the end")
    parser.set_defaults(run=_train)


def add_measure(parser: argparse.ArgumentParser) -> None:
    """Options of `measure`."""
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="weights to measure")
    parser.add_argument("--output", type=Path, default=TABLE, help="CSV file to write")
    parser.add_argument("--quick", action="store_true", help="tiny: checks that it runs, the numbers mean nothing")
    parser.set_defaults(run=_measure)


def _train(options: argparse.Namespace) -> None:
    # With as many threads as a machine of two cores has, the gradient of the network deadlocks in XLA for some sizes.
    # JAX reads this when it first computes.
    os.environ.setdefault("NPROC", "16")
    options.state.parent.mkdir(parents=True, exist_ok=True)
    state = train(options.state, options.chunks, options.rate, first=options.first)
    arrays: dict[str, Any] = arrays_of_network(state.average)
    np.savez(options.weights, **arrays)


def _measure(options: argparse.Namespace) -> None:
    with np.load(options.weights, allow_pickle=False) as arrays:
        network = network_from_arrays(dict(arrays))
    rows = measure(network, quick=options.quick)
    show(rows, Console())
    write_table(rows, options.output)


if __name__ == "__main__":
    main()
