"""`forge tools verify`: every imported tool held against what `tools.lock` says of it. Changes nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from golem_forge.cli.plain import complain, one_line, parser, print_json
from golem_forge.cli.tools.telling import FAILED, refused
from golem_forge.core.errors import ForgeError

HELP: Final = """usage: forge tools verify [--json]

Says which imported tools are no longer what was imported: edited, missing or unreadable.
`forge tools diff NAME DIGEST` shows what changed, `forge tools update NAME` takes the source's files again.
Exit: 0 all are as they were imported, 1 drift, or tools.lock cannot be read, 2 usage."""


def run_verify(words: list[str]) -> int:
    reader = parser("tools verify", HELP)
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)

    from golem_forge.config.home import forge_home
    from golem_forge.custom.sharing.lock import read_lock
    from golem_forge.custom.sharing.verifying import verify

    home = forge_home()
    try:
        names = list(read_lock(home))
        drifted = verify(home)
    except (ForgeError, OSError) as error:
        return refused("verify", error)
    if asked.json:
        print_json({"ok": not drifted, "checked": names, "drift": [asdict(each) for each in drifted]})
    elif drifted:
        for each in drifted:
            print(one_line(each.text))
        complain(
            "tools verify",
            "`forge tools diff NAME DIGEST` shows what changed, "
            "`forge tools update NAME` takes the source's files again.",
        )
    elif names:
        count = "1 imported tool is" if len(names) == 1 else f"{len(names)} imported tools are"
        print(f"{count} as tools.lock says.")
    else:
        print("No tool was imported.")
    return FAILED if drifted else 0
