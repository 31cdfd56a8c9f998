"""Counts the source: files, lines, imports, parameters, repeated names, and what one call runs through.

    python scripts/measure_code.py                  this checkout
    python scripts/measure_code.py ../old .         two checkouts side by side
    python scripts/measure_code.py --run ../old .   also runs each: import time, files of one exec_command

Everything is read from the files; only `--run` starts Python on them, with this interpreter.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST_PARAMETERS: Final = 8
FREE_OF_LIMIT: Final = {
    "Event.__init__",
    "Tool.__init__",
    "Worker.__init__",
    "WorkerRuntime.__init__",
    "create_event_cli_adapter",
    "define_mcp_tool",
}
"""Public constructors and factories: their keywords are a promise (`tests/compat/python/names.json`)."""
IMPORT_ROUNDS: Final = 7
NOT_CODE: Final = {"__pycache__", "homes"}  # `homes`: directories that earlier versions wrote, kept for the tests

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the source of one or more checkouts.")
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path(__file__).resolve().parent.parent])
    parser.add_argument("--run", action="store_true", help="also measure import time and trace one exec_command")
    options = parser.parse_args()
    columns = [count(root.resolve()) for root in options.checkouts]
    if options.run:
        for root, column in zip(options.checkouts, columns, strict=True):
            column.update(traced(root.resolve()))
        for root, seconds in import_times([root.resolve() for root in options.checkouts]).items():
            columns[[each.resolve() for each in options.checkouts].index(root)]["import of the runtime (CPU ms)"] = (
                seconds
            )
    for name in columns[0]:
        print(f"{name:<48}" + "".join(f"{column[name]:>14,}" for column in columns))
    return 0


def count(root: Path) -> dict[str, float]:
    source = root / "src" / "golem_forge"
    files = [path for path in sorted(source.rglob("*.py")) if not NOT_CODE & set(path.parts)]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    page = [path for path in sorted(source.rglob("*")) if path.suffix in {".js", ".css"}]
    tests = [path for path in sorted((root / "tests").rglob("*.py")) if not NOT_CODE & set(path.parts)]
    functions = [found for tree in trees.values() for found in functions_of(tree)]
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    imports = [
        node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return {
        "Python files in src": len(files),
        "Python lines in src": sum(map(lines_of, files)),
        "  of them code": sum(map(code_lines, files)),
        "functions in src": len(functions),
        "import lines": sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports),
        "imports inside functions": sum(map(imports_inside, trees.values())),
        f"functions with more than {MOST_PARAMETERS} parameters": sum(
            parameters(node) > MOST_PARAMETERS for name, node in functions if name not in FREE_OF_LIMIT
        ),
        "public class names used twice": sum(times > 1 for times in classes.values()),
        "modules named …ing": sum(path.stem.endswith("ing") for path in files),
        "files under 60 lines": sum(lines_of(path) < 60 for path in files),
        "page files (JS, CSS)": len(page),
        "page lines": sum(map(lines_of, page)),
        "test files": len(tests),
        "test lines": sum(map(lines_of, tests)),
    }


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def code_lines(path: Path) -> int:
    """Lines that hold a token other than a comment or a docstring."""
    text = path.read_text(encoding="utf-8")
    held: set[int] = set()
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(held)


def functions_of(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Each function with its name, a method with that of its class."""
    methods: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found = [each for each in _statements_of(node) if isinstance(each, Function)]
            methods.update(found)
            yield from ((f"{node.name}.{each.name}", each) for each in found)
    yield from ((node.name, node) for node in ast.walk(tree) if isinstance(node, Function) and node not in methods)


def _statements_of(node: ast.ClassDef) -> Iterator[ast.stmt]:
    """The statements of a class body, with those that only type checkers or only Python read."""
    for each in node.body:
        yield from (*each.body, *each.orelse) if isinstance(each, ast.If) else (each,)


def parameters(node: Function) -> int:
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return len(named) - bool(named and named[0].arg in {"self", "cls"})


def imports_inside(tree: ast.Module) -> int:
    inside = {
        each
        for node in ast.walk(tree)
        if isinstance(node, Function)
        for each in ast.walk(node)
        if isinstance(each, ast.Import | ast.ImportFrom)
    }
    return len(inside)


TRACED: Final = """
import asyncio, json, os, sys
from pathlib import Path
from golem_forge import open_session
files, functions, moves, last = set(), set(), 0, None
source = str(Path(sys.modules["golem_forge"].__file__).parent)

def trace(frame, event, _):
    global moves, last
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(source):
        files.add(name); functions.add((name, frame.f_code.co_qualname))
        moves += name != last; last = name

async def main():
    answer = {"approved": True}
    async with open_session(Path.cwd(), toolsets={"exec": {}}, approval_callback=lambda request: answer) as session:
        for _ in range(2):
            assert (await session.call("exec_command", {"cmd": "true"})).status.value == "success"
        import threading
        threading.setprofile(trace); sys.setprofile(trace)
        outcome = await session.call("exec_command", {"cmd": "true"})
        sys.setprofile(None); threading.setprofile(None)
        assert outcome.status.value == "success", outcome
asyncio.run(main())
print(json.dumps({"files": len(files), "functions": len(functions), "moves": moves}))
"""


def traced(root: Path) -> dict[str, float]:
    """One warm `exec_command`: how many of our files and functions it runs through."""
    with tempfile.TemporaryDirectory() as place:
        done = run(root, TRACED, place)
    seen = json.loads(done)
    return {
        "files one warm exec_command runs through": seen["files"],
        "functions of them": seen["functions"],
        "moves between files": seen["moves"],
    }


IMPORTED: Final = (
    "import time; t = time.process_time(); import golem_forge.{name}.runtime; print(time.process_time() - t)"
)


def import_times(roots: list[Path]) -> dict[Path, float]:
    """The least of several, taken in turn, so that a busy moment meets all checkouts alike."""
    best: dict[Path, float] = dict.fromkeys(roots, float("inf"))
    with tempfile.TemporaryDirectory() as place:
        for _ in range(IMPORT_ROUNDS + 1):
            for root in roots:
                name = "agent" if (root / "src" / "golem_forge" / "agent").is_dir() else "workers"
                best[root] = min(best[root], float(run(root, IMPORTED.format(name=name), place)) * 1000)
    return {root: round(found, 1) for root, found in best.items()}


def run(root: Path, program: str, place: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FORGE_"))}
    environment |= {"PYTHONPATH": str(root / "src"), "HOME": place, "FORGE_HOME": f"{place}/.forge"}
    done = subprocess.run([sys.executable, "-c", program], cwd=place, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{root}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
