"""The twelve tasks: files to begin with, words for the agent, and a check of what it left or said.

A check reads files and the answer; nothing that the agent claims to have done counts. `needs` names what an agent must
have besides files and commands; one that has not is not counted for that task.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

USER_TOOL: Final = "a user tool"
MCP_TOOL: Final = "an MCP tool"
SUB_WORKER: Final = "a sub-worker"
Check = Callable[[Path, str], bool]
"""(the directory it worked in, its answer) → whether the task is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    name: str
    prompt: str
    check: Check
    files: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""


def says(*words: str) -> Check:
    """Every one of them, as a word of its own."""
    return lambda _, answer: all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", answer, re.I) for word in words)


def holds(name: str, text: str) -> Check:
    """The file is exactly this, but for blank space at its ends."""
    return lambda where, _: (where / name).is_file() and (where / name).read_text().strip() == text


def is_short(words: int, check: Check) -> Check:
    return lambda where, answer: 0 < len(answer.split()) <= words and check(where, answer)


def cart_test_passes(where: Path, _: str) -> bool:
    """The test that was failing, as it was written, passes with what the agent made of the rest."""
    (where / "test_cart.py").write_text(_TEST)
    done = subprocess.run(
        [sys.executable, "-I", "-c", _RUN_TEST], cwd=where, capture_output=True, timeout=60, check=False
    )
    return done.returncode == 0


_CART: Final = (
    "def total(prices):\n    result = 0\n    for price in prices:\n        result += price\n    return result\n"
)
_BROKEN: Final = _CART.replace("result = 0", "result = 1")
_TEST: Final = (
    "import unittest\n\nfrom cart import total\n\n\nclass TotalTest(unittest.TestCase):\n    def test_total(self):\n"
    "        self.assertEqual(total([2, 3]), 5)\n\n\nif __name__ == '__main__':\n    unittest.main()\n"
)
_RUN_TEST: Final = "import sys; sys.path.insert(0, '.'); import unittest; unittest.main('test_cart', argv=['test'])"
_LOG: Final = "".join(f"10:{n:02} {'ERROR' if n % 4 == 1 else 'INFO'} step {n}\n" for n in range(60))
_LETTER: Final = (
    "Dear team,\n\nthe bakery in Lisbon opens on Monday. Maria runs it. We still need an oven: the old one broke.\n"
    + "We talked about colours for a long time and decided nothing.\n" * 20
    + "Please send offers for the oven to Maria before Friday.\n"
)

TASKS: Final = (
    Task(
        name="explain a function",
        prompt="What does the function total in cart.py do? One sentence.",
        files={"cart.py": _CART},
        check=lambda where, answer: bool(re.search(r"\b(sum|add|total)", answer, re.I)) and "price" in answer.lower(),
    ),
    Task(
        name="find a symbol",
        prompt="In which file is the function parse_row defined?",
        files={
            "main.py": "from readers import parse_row\n\nprint(parse_row('a;b'))\n",
            "readers.py": "def parse_row(line):\n    return line.split(';')\n",
            "writers.py": "def write_row(cells):\n    return ';'.join(cells)\n",
        },
        check=says("readers.py"),
    ),
    Task(
        name="change one line",
        prompt="Set TIMEOUT to 45 in settings.py. Change nothing else.",
        files={"settings.py": "HOST = 'localhost'\nTIMEOUT = 30\nRETRIES = 3\n"},
        check=holds("settings.py", "HOST = 'localhost'\nTIMEOUT = 45\nRETRIES = 3"),
    ),
    Task(
        name="create a file",
        prompt="Create a file greeting.txt that contains exactly: Hello, world",
        check=holds("greeting.txt", "Hello, world"),
    ),
    Task(
        name="mend a failing test",
        prompt="The test in test_cart.py fails. Find the mistake in cart.py and mend it.",
        files={"cart.py": _BROKEN, "test_cart.py": _TEST},
        check=cart_test_passes,
    ),
    Task(
        name="use a user tool",
        prompt="Use the tool shelf_mark to get the shelf mark of the book 'Dune'. Answer with it.",
        check=says("SF-4711"),
        needs=USER_TOOL,
    ),
    Task(
        name="use an MCP tool",
        prompt="Use the add tool of the MCP server to add 48151 and 62342. Answer with the sum.",
        check=says("110493"),
        needs=MCP_TOOL,
    ),
    Task(
        name="summarise a letter",
        prompt="Summarise letter.txt in at most 40 words.",
        files={"letter.txt": _LETTER},
        check=is_short(60, says("Maria", "oven")),
    ),
    Task(
        name="count lines",
        prompt="How many lines of app.log contain ERROR? Answer with the number.",
        files={"app.log": _LOG},
        check=says("15"),
    ),
    Task(
        name="hand work over",
        prompt="Ask the worker librarian for the title of the oldest book, and answer with that title.",
        files={"books.txt": "1965 Dune\n1818 Frankenstein\n1984 Neuromancer\n"},
        check=says("Frankenstein"),
        needs=SUB_WORKER,
    ),
    Task(
        name="find a line in long output",
        prompt="Run `python3 report.py`. One line of its output names a broken machine. Which machine is broken?",
        files={
            "report.py": "for n in range(5000):\n    print(f'machine m{n:04} is', 'broken' if n == 3377 else 'fine')\n",
        },
        check=says("m3377"),
    ),
    Task(
        name="combine two files",
        prompt="a.txt and b.txt hold one number each. What is their sum?",
        files={"a.txt": "1234\n", "b.txt": "4321\n"},
        check=says("5555"),
    ),
)
