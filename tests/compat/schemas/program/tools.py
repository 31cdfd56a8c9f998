"""Tools of a small program; what they offer and answer is pinned beside them."""

import time
from typing import Annotated, Literal

from golem_forge import ToolResult, tool


@tool(needs_approval=False, mode="both", label="Add", category="Sums")
def add(a: Annotated[int, "The first."], b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(mode="both")
def greet(name: str, how: Literal["loud", "soft"] = "soft", times: list[int] | None = None) -> str:
    """Greet somebody.

    Args:
        name: Who it is.
    """
    return f"Hello, {name}"


@tool(needs_approval=False, mode="both")
def fail(why: str) -> str:
    """Fail."""
    raise LookupError(why)


@tool(mode="both")
def shut() -> str:
    """Nobody may call it."""
    return ""


@tool(needs_approval=False, mode="both", timeout=0.5)
def long(lines: int = 0) -> str:
    """A long answer, or none in time."""
    if not lines:
        time.sleep(60)
    return "\n".join(f"line {number} of many" for number in range(lines))


@tool(needs_approval=False, mode="both", read_only=True)
def shapes(kind: Literal["text", "diff", "file_content", "file_list", "json", "own"]) -> ToolResult:
    """A result of each kind."""
    return {
        "text": ToolResult({"kind": "text", "text": "plain"}),
        "diff": ToolResult({"kind": "diff", "path": "a.txt", "original": "one\n", "modified": "two\n"}),
        "file_content": ToolResult({"kind": "file_content", "path": "a.txt", "content": "one\n"}),
        "file_list": ToolResult({"kind": "file_list", "path": ".", "files": ["a.txt"]}),
        "json": ToolResult({"kind": "json", "data": {"a": [1, None, True]}}),
        "own": ToolResult({"kind": "own.chart", "data": [1, 2], "display": {"title": "A chart"}}),
    }[kind]
