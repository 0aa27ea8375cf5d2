"""Repeat an experiment of the paper: `python -m experiments.paper toy [--quick] [-o DIRECTORY]`."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from experiments.paper import reproduce
from ggmflow.cli.terminal import duration


def main() -> int:
    """Do the experiment, or what is left of it."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.paper", description="Repeat an experiment of the paper."
    )
    parser.add_argument("experiment", choices=["toy", "edges", "blanket", "runtime"])
    parser.add_argument(
        "-o", "--output", type=Path, help="directory for tables and figures; default: this one's results"
    )
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works; the numbers mean nothing")
    asked = parser.parse_args()
    home = Path(__file__).parent / "results"
    directory = asked.output or (home / "quick" if asked.quick else home)
    command = " ".join(["python -m experiments.paper", *sys.argv[1:]])
    console, begun = Console(stderr=True, highlight=False), []

    def tell(name: str, seconds: float | None) -> None:
        if seconds is None:
            begun.append(name)
            console.print(f"  {name} …", end="\r" if console.is_terminal else "\n")
        else:
            console.print(f"[green]✓[/green] {name}  [dim]{duration(seconds)}[/dim]")

    try:
        tables, figures = reproduce(asked.experiment, directory, quick=asked.quick, command=command, tell=tell)
    except KeyboardInterrupt:
        console.print("Stopped. Finished parts are kept: the same command continues from there.")
        return 130
    if not begun:
        console.print(f"Nothing was left to do in {directory / asked.experiment}; -o starts again elsewhere.")
    for path in [directory / asked.experiment / f"{name}.csv" for name in tables] + figures:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
