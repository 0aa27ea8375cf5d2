"""Command line of `experiments.pretrain`."""

import argparse
from pathlib import Path

import numpy as np

from experiments.pretrain.training import train
from ggmflow.flow.structured_network import arrays_of_network

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "src" / "ggmflow" / "flow" / "structured_network.npz"


def main() -> None:
    """Read the arguments and run a command."""
    parser = argparse.ArgumentParser(prog="python -m experiments.pretrain", description=__doc__)
    parser.add_argument("command", choices=["train", "measure"])
    parser.add_argument("--state", type=Path, default=Path("results/pretrain/state.npz"))
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="written after training")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=3e-3)
    arguments = parser.parse_args()
    arguments.state.parent.mkdir(parents=True, exist_ok=True)
    state = train(arguments.state, arguments.minutes, arguments.rate)
    np.savez(arguments.weights, **arrays_of_network(state.average))


if __name__ == "__main__":
    main()
