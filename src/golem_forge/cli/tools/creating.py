"""`forge tools new NAME`: scaffolds a tool of one's own. The same rules and refusals as `create_custom_tool`.

No card: the person who types it is the one who would be asked, and nothing of it runs.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from golem_forge.cli.plain import complain, parser
from golem_forge.cli.tools.shop import open_shop
from golem_forge.core.visible import visible

HELP: Final = """usage: forge tools new NAME [--description TEXT] [--language LANGUAGE] [--usage TEXT] [--source FILE]

Makes ~/.forge/tools/NAME with a tool.yaml and a source to start from. Nothing of it runs before `forge tools activate`.

  --description TEXT   one line: what the tool does
  --language LANGUAGE  python (default), shell or go; of --source what its ending says
  --usage TEXT         how to use it, for whoever calls it later
  --source FILE        take this file as the source instead of the template; `-` reads it from standard input

Exit: 0 made, 2 a name or text that cannot be used, or a name that is taken."""
_VERB: Final = "new"
_LANGUAGES: Final = {".py": "python", ".sh": "shell", ".go": "go"}
_LARGEST_SOURCE: Final = 10 << 20


def run_new(words: list[str]) -> int:
    reader = parser(f"tools {_VERB}", HELP)
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("--description")
    reader.add_argument("--language", choices=tuple(_LANGUAGES.values()))
    reader.add_argument("--usage", default="")
    reader.add_argument("--source", metavar="FILE")
    asked = reader.parse_args(words)
    args: dict[str, Any] = {
        "name": asked.name,
        # Words that say nothing, so that two tools nobody has described yet are not alike.
        "description": f"The tool {asked.name}" if asked.description is None else asked.description,
        "language": asked.language or _language_of(asked.source or ""),
        "usage": asked.usage,
    }
    if asked.source is not None:
        source = _read(asked.source)
        if source is None:
            return 2
        args["source"] = source
    return _make(args)


def _make(args: dict[str, Any]) -> int:
    from golem_forge.custom.book.records import MANUAL
    from golem_forge.custom.making.create_tool import NAME, checked, put, remarks
    from golem_forge.tools.validation import InputInvalid
    from golem_forge.workers.catalog import build_catalog

    shop, name = open_shop(), args["name"]
    try:
        creation = checked(shop, build_catalog(), args, MANUAL)
        source = put(creation)
    except InputInvalid as refused:
        text = refused.message.removeprefix(f"{NAME}: ")
        complain(f"tools {_VERB}", text.replace("/user_tools", shop.shown_folder("")))
        return 2
    print(visible(f"Created custom tool '{name}' (draft) in {shop.shown_folder(name)}: tool.yaml, {source}."))
    print(
        "Edit the source, declare parameters and at least one test in tool.yaml, then run "
        f"`forge tools activate {name}`."
    )
    if said := remarks(creation).strip():
        print(visible(said))
    return 0


def _language_of(source: str) -> str:
    return next((language for ending, language in _LANGUAGES.items() if source.endswith(ending)), "python")


def _read(path: str) -> str | None:
    """None: it was said why it cannot be."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LARGEST_SOURCE + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_LARGEST_SOURCE + 1)
        if len(data) > _LARGEST_SOURCE:
            complain(f"tools {_VERB}", f"{path} is larger than {_LARGEST_SOURCE >> 20} MiB.")
        elif not data.strip():
            complain(f"tools {_VERB}", f"{path} is empty; leave --source out to start from a template.")
        else:
            return data.decode()
    except UnicodeDecodeError:
        complain(f"tools {_VERB}", f"{path} is not UTF-8 text.")
    except OSError as error:
        complain(f"tools {_VERB}", f"{path} cannot be read: {error.strerror}.")
    return None
