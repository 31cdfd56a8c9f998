"""The project that the pictures show: a shop with a wrong price, three workers, and what the model says about it.

`set_up(folder)` writes `folder/home` with the project in `home/shop` and gives the environment in which `forge` sees
nothing of this machine. Every word of the model is written down here; what the tools do is real.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

ASKED: Final = "Three mugs cost three cents too little. Find out why and mend it."
MENDED: Final = "Three mugs cost 59.97 again"
"""How the last answer begins."""
SENT: Final = "test_cart.py fails: three times 19.99 is not 5997 cents. Find the cause and mend it."
"""What the main worker tells the fixer."""

_FILES: Final = {
    "cart.py": '''\
"""What a customer pays."""


def cents(price: float) -> int:
    """A price in euros as cents."""
    return int(price * 100)


def total(prices: list[float]) -> int:
    return sum(cents(price) for price in prices)
''',
    "test_cart.py": """\
from cart import total

mugs = total([19.99] * 3)
print(f"three mugs: {mugs} cents,", "as expected" if mugs == 5997 else "expected 5997")
raise SystemExit(mugs != 5997)
""",
    "README.md": "# Shop\n\nMugs, parcels and vouchers.\n",
}
_PROGRAM: Final = {
    "forge.yaml": """\
entry: main.worker
sandbox:
  zones:
    shop: {path: ., mode: rw, approval: {write: ask, delete: blocked}}
budget: {max_requests: 40, max_tool_calls: 40}
""",
    "main.worker": """\
---
name: main
description: Looks after the shop.
toolsets:
  filesystem:
  search:
  edit:
  plan:
  exec:
  workers: {allow: [fixer, reviewer], approval: {default: preApproved}}
sandbox:
  zones: [{name: shop, mode: rw}]
---
You look after a small shop's code.
""",
    "workers/fixer.worker": """\
---
name: fixer
description: Finds a cause and changes as little as it can.
toolsets: {filesystem: , search: , edit: }
sandbox:
  zones: [{name: shop, mode: rw}]
---
You mend what is broken.
""",
    "workers/reviewer.worker": """\
---
name: reviewer
description: Reads a change and says what it thinks of it.
toolsets: {filesystem: , search: }
sandbox:
  zones: [{name: shop, mode: ro}]
---
You read changes.
""",
}

_RULES: Final = """\
version: 1
rules:
  - {command: [python3, test_cart.py], verdict: preApproved, reason: the shop's test}
"""
_PATCH: Final = """\
      - tool: apply_patch
        args:
          input: |
            *** Begin Patch
            *** Update File: cart.py
            @@
                 \"\"\"A price in euros as cents.\"\"\"
            -    return int(price * 100)
            +    return round(price * 100)
            *** End Patch
"""
_ALONE: Final = f"""\
turns:
  - say: I look for where prices become cents.
    calls: [{{tool: read_file, args: {{path: cart.py, offset: 4, limit: 3}}}}]
  - say: "`int` cuts 1998.9999999999998 to 1998. It must round."
    calls:
{_PATCH}
  - say: The test has the last word.
    calls:
      - {{tool: exec_command, args: {{cmd: "python3 test_cart.py", yield_time_ms: 30000}}}}
  - say: "**{MENDED}.** `cents` cut the fraction off; now it rounds. The test passes."
"""
_WITH_WORKERS: Final = f"""\
workers:
  main:
    - calls:
        - tool: update_plan
          args:
            plan:
              - {{step: Run the tests, status: in_progress}}
              - {{step: Find the cause and mend it, status: pending}}
              - {{step: Let somebody else read the change, status: pending}}
    - say: The tests first.
      calls: [{{tool: exec_command, args: {{cmd: "python3 test_cart.py", yield_time_ms: 30000}}}}]
    - calls:
        - tool: update_plan
          args:
            plan:
              - {{step: Run the tests, status: completed}}
              - {{step: Find the cause and mend it, status: in_progress}}
              - {{step: Let somebody else read the change, status: pending}}
    - say: "Three mugs come out at 5994 cents instead of 5997. The fixer looks into it."
      calls:
        - tool: fixer
          args: {{input: "{SENT}"}}
    - calls:
        - tool: update_plan
          args:
            plan:
              - {{step: Run the tests, status: completed}}
              - {{step: Find the cause and mend it, status: completed}}
              - {{step: Let somebody else read the change, status: in_progress}}
        - tool: reviewer
          args: {{input: "cents() rounds now instead of cutting. Read /shop/cart.py: is anything else wrong?"}}
    - say: The tests again.
      calls: [{{tool: exec_command, args: {{cmd: "python3 test_cart.py", yield_time_ms: 30000}}}}]
    - calls:
        - tool: update_plan
          args:
            plan:
              - {{step: Run the tests, status: completed}}
              - {{step: Find the cause and mend it, status: completed}}
              - {{step: Let somebody else read the change, status: completed}}
    - say: "**{MENDED}.** `cents` cut the fraction off; now it rounds. The test passes, and the reviewer found
        nothing else."
  fixer:
    - calls: [{{tool: read_file, args: {{path: /shop/cart.py}}}}]
    - say: "`int` cuts 1998.9999999999998 to 1998. It must round."
      calls:
{_PATCH.replace(chr(10) + " ", chr(10) + "   ").replace("      - tool", "        - tool", 1)}
    - say: "`cents` cut the fraction off instead of rounding. One line changed."
  reviewer:
    - calls: [{{tool: read_file, args: {{path: /shop/cart.py}}}}]
    - say: The change is right. Nothing else in `cart.py` turns a price into cents.
"""


class Shop(NamedTuple):
    project: Path
    environ: dict[str, str]


def set_up(folder: Path, *, workers: bool) -> Shop:
    """`workers`: a program of three workers; else a plain folder, for the worker that Forge brings along."""
    home, project = folder / "home", folder / "home" / "shop"
    script = {"model.yaml": _WITH_WORKERS if workers else _ALONE, "../.forge/rules.yaml": _RULES}
    for name, text in {**_FILES, **(_PROGRAM if workers else {}), **script}.items():
        (project / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (project / name).write_text(text)
    # The person was asked once how Forge works here, and said: ask before each change.
    answer = {"mode": "interactive", "verdict": "ask", "scope": {"project": os.path.realpath(project)}}
    (home / ".forge" / "remembered.yaml").write_text(f"version: 1\nrules:\n  - {json.dumps(answer)}\n")
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH")}
    own = {"HOME": str(home), "FORGE_HOME": str(home / ".forge"), "USER": "you", "TZ": "UTC", "LANG": "C.UTF-8"}
    return Shop(project, kept | own | {"TERM": "xterm-256color", "COLORTERM": "truecolor"})
