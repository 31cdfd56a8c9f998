"""Prints the lines and branches that the tests ran, by package, from the JSON report of coverage.py."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

PACKAGE = "golem_forge"


def main(report: Path) -> None:
    counts: dict[str, Counter[str]] = {}
    for name, file in json.loads(report.read_text())["files"].items():
        parts = Path(name).parts
        inside = parts[parts.index(PACKAGE) + 1 :]
        package = inside[0] if len(inside) > 1 else "(top)"
        numbers = Counter({key: value for key, value in file["summary"].items() if isinstance(value, int)})
        for row in (package, "all"):
            counts.setdefault(row, Counter()).update(numbers)
    print(f"{'package':<14}{'lines':>8}{'ran':>8}{'branches':>10}{'ran':>8}")
    for package in sorted(counts, key=lambda name: (name == "all", name)):
        of = counts[package]
        lines = of["covered_lines"] / (of["num_statements"] or 1)
        branches = of["covered_branches"] / (of["num_branches"] or 1)
        print(f"{package:<14}{of['num_statements']:>8,}{lines:>8.1%}{of['num_branches']:>10,}{branches:>8.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
