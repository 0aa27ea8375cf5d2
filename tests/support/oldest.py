"""Constraints for pip that hold every dependency at the lower end of its range: `python -m tests.support.oldest`.

    "jax>=0.8,<0.12" → "jax==0.8.0"

The newest versions are what an ordinary installation gets.
"""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lower_ends(requirements: list[str]) -> list[str]:
    """The oldest version that each requirement allows, as a constraint."""
    found = []
    for requirement in requirements:
        name, lowest = re.match(r"([\w.-]+)(?:\[.*\])?>=([\d.]+)", requirement).groups()
        parts = lowest.split(".")
        found.append(f"{name}=={'.'.join(parts + ['0'] * (3 - len(parts)))}")
    return found


if __name__ == "__main__":
    print(*lower_ends(tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]), sep="\n")
