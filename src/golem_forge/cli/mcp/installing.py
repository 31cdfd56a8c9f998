"""`forge mcp install [CLIENT]`: the config that makes another product start `forge mcp serve` for this program.

Prints it; with `--write` merges it into that product's file. The entry names this very `forge` and the program's
directory, because products start servers elsewhere and with another PATH.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import columns, complain, homely, parser
from golem_forge.sandbox.host import find_program

if TYPE_CHECKING:
    from golem_forge.cli.mcp.products import Product, Start

HELP: Final = """usage: forge mcp install [CLIENT] [--write] [--name NAME] [--worker FILE] [-p DIR]

Prints the configuration that makes another product start `forge mcp serve` for the program around this directory, and
the file it belongs into. Without CLIENT: the products it knows.

  --write            merge it into that file; everything else in it stays
  --name NAME        under this name (default golem-forge)
  --worker FILE      serve as that worker: a file, or a name of the program's
  -p, --program DIR  the program in that directory instead of this one

Any other product that takes a command: forge mcp serve -p DIR.
Exit: 0 done, 1 the file cannot be merged with, 2 usage, 4 no such product."""

DEFAULT_NAME: Final = "golem-forge"


def run_install(words: list[str]) -> int:
    reader = parser("mcp install", HELP)
    reader.add_argument("client", metavar="CLIENT", nargs="?")
    reader.add_argument("--write", action="store_true")
    reader.add_argument("--name", default=DEFAULT_NAME)
    reader.add_argument("--worker", metavar="FILE")
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    from golem_forge.cli.mcp.products import PRODUCTS
    from golem_forge.config.mcp.names import NAME_RULE, is_server_name
    from golem_forge.config.program import program_root

    if not is_server_name(asked.name):
        reader.error(f"--name '{asked.name}' cannot name a server ({NAME_RULE})")
    if not os.path.isdir(asked.program):
        reader.error(f"-p {asked.program} is not a directory")
    root = program_root(Path(asked.program))
    if asked.client is None:
        if asked.write:
            reader.error("--write needs a CLIENT")
        rows = ((name, product.title, homely(product.file(root))) for name, product in PRODUCTS.items())
        print(columns([("CLIENT", "PRODUCT", "FILE"), *rows]))
        return 0
    if asked.client not in PRODUCTS:
        return _unknown(asked.client, list(PRODUCTS))
    start = _start(root, asked.worker)
    product = PRODUCTS[asked.client]
    return (_write if asked.write else _print)(product, product.file(root), asked.name, start)


def _print(product: Product, file: Path, name: str, start: Start) -> int:
    from golem_forge.cli.mcp.merging import snippet

    print(f"{product.title} reads this from {homely(file)}; --write merges it in:", file=sys.stderr)
    sys.stdout.write(snippet(product.format, product.key, name, product.entry(start)))
    return 0


def _write(product: Product, file: Path, name: str, start: Start) -> int:
    from golem_forge.cli.mcp.merging import CannotMerge, merge, snippet

    entry = product.entry(start)
    try:
        changed = merge(file, product.format, product.key, name, entry)
    except CannotMerge as refused:
        complain("mcp install", f"{homely(file)} is left as it is: {refused}. The entry:")
        sys.stdout.write(snippet(product.format, product.key, name, entry))
        return 1
    print(f"{'wrote' if changed else 'there already:'} {name} {'into' if changed else 'in'} {homely(file)}")
    if changed and product.then:
        print(product.then)
    return 0


def _start(root: Path, worker: str | None) -> Start:
    from golem_forge.cli.mcp.products import Start

    args = ["mcp", "serve", "-p", str(root)]
    if worker is not None:
        args += ["--worker", os.path.abspath(worker) if os.path.isfile(worker) else worker]
    named = os.environ.get("FORGE_HOME", "")
    env = {"FORGE_HOME": os.path.abspath(os.path.expanduser(named))} if named else {}
    return Start(command=_forge(), args=args, env=env)


def _forge() -> str:
    """This very command; the name alone where it cannot be found."""
    beside = Path(sys.executable).with_name("forge")
    return str(beside) if os.access(beside, os.X_OK) else find_program("forge") or "forge"


def _unknown(client: str, known: list[str]) -> int:
    from golem_forge.core.nearest import nearest

    close = nearest(client, known)
    hint = f" (did you mean '{close}'?)" if close else ""
    complain("mcp install", f"no product '{client}' is known{hint}. `forge mcp install` lists them.")
    return 4
