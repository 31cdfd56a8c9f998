"""Making 1,000 functions into tools: what a program pays at import, before a model has seen any of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.peers import DEFINITIONS
from benchmarks.rows import Row, at_most, row
from benchmarks.subject import Function, fresh_functions
from golem_forge.tools.factory import tool

COUNT = 1_000
OURS = "ours"
OURS_WITH_SCHEMAS = "ours, schemas asked for"
GOAL_PEER = "pydantic-ai"


async def rows(pace: Pace) -> list[Row]:
    count = pace.amount(COUNT)
    work = {OURS: _define, OURS_WITH_SCHEMAS: _define_and_ask, **DEFINITIONS}
    prepare = partial(fresh_functions, count)
    blocks = {name: Block(run=run, prepare=prepare) for name, run in work.items()}
    milliseconds = {name: value * 1e3 for name, value in (await race_blocks(blocks, rounds=3)).items()}
    return [
        *(
            row(
                f"define {count:,} tools (ms)",
                milliseconds[OURS],
                peer=milliseconds[name],
                peer_name=name,
                goal=at_most(0.05) if name == GOAL_PEER else None,
            )
            for name in DEFINITIONS
        ),
        row(
            f"define {count:,} tools, every schema asked for (ms)",
            milliseconds[OURS_WITH_SCHEMAS],
            peer=milliseconds[GOAL_PEER],
            peer_name=GOAL_PEER,
            goal=at_most(1.0),
        ),
    ]


def _define(functions: Sequence[Function]) -> object:
    return [tool(function) for function in functions]


def _define_and_ask(functions: Sequence[Function]) -> object:
    return [tool(function).input_schema for function in functions]
