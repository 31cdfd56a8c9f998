"""`forge mcp remove NAME`: takes a server's block out of forge.yaml or config.yaml, and forgets what was agreed to."""

from __future__ import annotations

from typing import Final

from golem_forge.cli.plain import complain, homely, parser

HELP: Final = """usage: forge mcp remove NAME [--user] [-p DIR]

Takes an MCP server out of forge.yaml (comments stay) and forgets its approval, its pins and what it offered.

  --user             out of config.yaml of your own
  -p, --program DIR  the program in that directory instead of this one

A server of .mcp.json is another product's too: take it out there, or write `enabled: false` for it in forge.yaml.
Exit: 0 done, 2 usage or configuration, 4 no such server."""


def run_remove(words: list[str]) -> int:
    reader = parser("mcp remove", HELP)
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("--user", action="store_true")
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    from golem_forge.config.mcp.editing import remove_server
    from golem_forge.config.mcp.json_file import MCP_JSON
    from golem_forge.config.program import PROGRAM_FILE
    from golem_forge.core.errors import ConfigError
    from golem_forge.workers.mcp.known import look

    place = look(asked.program)
    spec = place.spec(asked.name)
    file = place.home.config if asked.user else place.program.root / PROGRAM_FILE
    try:
        remove_server(file, spec.name)
    except ConfigError as error:
        elsewhere = f" It is configured in {spec.origin}." if spec.origin else ""
        hint = f" Take it out there: {MCP_JSON} belongs to other products too." if spec.origin == MCP_JSON else ""
        complain("mcp remove", f"{'; '.join(error.problems)}.{elsewhere}{hint}")
        return 4
    place.book.forget(spec.scope, spec.name)
    place.cache.forget(spec.scope, spec.name)
    print(f"removed {spec.name} from {homely(file)}")
    return 0
