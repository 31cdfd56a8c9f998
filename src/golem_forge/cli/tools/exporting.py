"""`forge tools export NAME -o OUT`: a tool for others, as a folder, a reproducible archive or an Agent Skill.

Only the folder is passed on, as it is now: no trust, no history, no statistics. Nothing runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from golem_forge.cli.plain import homely, one_line, parser
from golem_forge.cli.tools.telling import NO_SUCH_TOOL, look_at_shop, refused, wrong_use
from golem_forge.core.errors import ForgeError

HELP: Final = """usage: forge tools export NAME -o DIR | -o FILE.tar.gz
       forge tools export NAME --skill -o DIR

Writes a tool of yours for others: its folder as DIR/NAME, or an archive whose bytes are the same whenever the files
are. The files go as they are now; trust, history and statistics stay here.

  --skill    as an Agent Skill: DIR/<skill>/SKILL.md, and the tool's files in its scripts/;
             `forge tools import` of it gives the tool back with an equal digest

Exit: 0 done, 1 it could not be written, 2 usage, 4 no such tool."""

_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar", ".zip")


def run_export(words: list[str]) -> int:
    reader = parser("tools export", HELP)
    reader.add_argument("name")
    reader.add_argument("-o", "--output", required=True, metavar="OUT")
    reader.add_argument("--skill", action="store_true")
    asked = reader.parse_args(words)
    if not asked.output:
        return wrong_use("export", "-o needs a folder or a FILE.tar.gz")
    out = Path(asked.output).expanduser()
    if asked.skill and out.name.lower().endswith(_ARCHIVES) and not out.is_dir():
        return wrong_use("export", "a skill is a folder; give -o DIR")

    from golem_forge.cli.tools.shop import entry_of
    from golem_forge.custom.sharing.exporting import export_skill, export_tool

    shop = look_at_shop()
    entry = entry_of(shop, "export", asked.name)
    if entry is None:
        return NO_SUCH_TOOL
    try:
        files = shop.registry.files(entry)
        written = export_skill(entry.manifest, files, out) if asked.skill else export_tool(files, entry.name, out)
    except (ForgeError, OSError) as error:
        return refused("export", error)
    print(f"Exported tool '{entry.name}' {one_line(entry.manifest.version)} to {homely(written)}")
    print(f"digest: {entry.digest}")
    return 0
