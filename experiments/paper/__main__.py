"""Repeat an experiment of the paper: `python -m experiments.paper toy [--quick] [-o DIRECTORY]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.paper import reproduce
from experiments.paper.record import EXPERIMENTS, OtherSettingsError
from ggmflow.cli.terminal import duration

# Not the results of the repository, which are replaced only on purpose; git ignores both directories.
OUTPUT, QUICK_OUTPUT = Path("results/paper"), Path("results/paper-quick")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment, or continue it, and print the paths of its tables and figures.

    Returns
    -------
    int
        Exit code: 0, 2 if the directory holds results of other settings, 130 if interrupted.
    """
    parser = argparse.ArgumentParser(
        prog="python -m experiments.paper", description="Repeat an experiment of the paper."
    )
    parser.add_argument("experiment", choices=EXPERIMENTS)
    default = f"{OUTPUT}; {QUICK_OUTPUT} with --quick"
    parser.add_argument("-o", "--output", type=Path, help=f"directory for tables and figures (default: {default})")
    parser.add_argument("--quick", action="store_true", help="about a minute, to see that it runs")
    options = parser.parse_args(arguments)
    directory = options.output or (QUICK_OUTPUT if options.quick else OUTPUT)
    command = " ".join(["python -m experiments.paper", *(sys.argv[1:] if arguments is None else arguments)])
    console, begun = Console(stderr=True, highlight=False), []

    def tell(name: str, seconds: float | None) -> None:
        if seconds is None:
            begun.append(name)
            console.print(f"  {name} …", end="\r" if console.is_terminal else "\n")
        else:
            console.print(f"[green]✓[/green] {name}  [dim]{duration(seconds)}[/dim]")

    try:
        tables, figures = reproduce(options.experiment, directory, quick=options.quick, command=command, tell=tell)
    except KeyboardInterrupt:
        console.print("Interrupted. Finished jobs are kept; run the same command to continue.")
        return 130
    except OtherSettingsError as error:
        console.print(f"Error: {error}", soft_wrap=True)
        return 2
    if not begun:
        console.print(f"All jobs in {directory / options.experiment} are finished; use -o to start again elsewhere.")
    for path in [directory / options.experiment / f"{name}.csv" for name in tables] + figures:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
