"""`python -m benchmarks [--quick] [--only TOPIC] [--record]`: measures, prints the table, writes build/bench.json.

A missed goal is shown and does not fail the command: one noisy run proves nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import platform
import sys
from importlib.metadata import version

from benchmarks.harness import FULL, QUICK, Pace
from benchmarks.rows import BENCH_JSON, RECORD, Row, save, table, verdict

TOPICS = (
    *("startup", "terminal", "memory", "walls", "undo", "warm", "user_tools", "registry", "growth"),
    *("files", "bus", "search", "dispatch", "batch", "define", "loop", "wire"),
    *("mcp_calls", "mcp_served", "web", "questions", "store", "programs"),
)
COMPARED = ("golem-forge", "pydantic-ai-slim", "openai-agents", "fastmcp", "mcp", "langchain-core", "llm")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Our figures beside those of peers.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a first look")
    parser.add_argument("--only", action="append", choices=TOPICS, metavar="TOPIC", help=f"one of {', '.join(TOPICS)}")
    parser.add_argument("--record", action="store_true", help=f"keep the rows in benchmarks/{RECORD.name} too")
    options = parser.parse_args()
    if sys.dont_write_bytecode:
        parser.error("unset PYTHONDONTWRITEBYTECODE: without byte-code files the figures mean nothing")
    versions = {"Python": platform.python_version(), **{name: version(name) for name in COMPARED}}
    print(", ".join(f"{name} {number}" for name, number in versions.items()), flush=True)
    rows = asyncio.run(measure(options.only or TOPICS, QUICK if options.quick else FULL))
    save(rows)
    if options.record:
        save(rows, RECORD, versions=versions)
    print(f"\n{table(rows)}\n\n{verdict(rows)}\nwritten to {BENCH_JSON.relative_to(BENCH_JSON.parent.parent)}")


async def measure(topics: list[str] | tuple[str, ...], pace: Pace) -> list[Row]:
    rows: list[Row] = []
    for name in topics:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        # Imported when its turn comes: the peers take seconds to import, and not every topic needs them.
        rows += await importlib.import_module(f"benchmarks.{name}").rows(pace)
    return rows


if __name__ == "__main__":
    main()
