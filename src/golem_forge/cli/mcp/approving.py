"""`forge mcp approve NAME [TOOL]`: a person agrees to a server's config, to changed definitions, to new tools.

What is agreed to is exactly what was shown: the config by its digest, a tool by the definition on the screen. A server
that says something else later is asked about again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.mcp.consent import DENIED, Answer, agree_to_start, ask, say
from golem_forge.cli.plain import complain, one_line, parser
from golem_forge.mcp.client.definitions.definition import HeldTool, Listing, RemoteTool
from golem_forge.mcp.client.trust.agreeing import definition_at_stake, every, is_waiting, waiting

if TYPE_CHECKING:
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.workers.mcp.known import Place

HELP: Final = """usage: forge mcp approve NAME [TOOL] [--yes] [-p DIR]

Shows what a server would run or where it is, and what it would get; after a change also the difference; then asks.
Then one question for each of its tools whose definition changed (`drift`), with the difference, and for each that is
new since it was first listed. With TOOL (its own name, or the one callers use) only that tool.

  --yes              agree without being asked
  -p, --program DIR  the program in that directory instead of this one

A yes holds for this configuration and these definitions; any change asks again.
Exit: 0 agreed or nothing to agree to, 1 it cannot be approved, 2 usage or configuration, 3 not agreed,
4 no such server or tool."""


def run_approve(words: list[str]) -> int:
    reader = parser("mcp approve", HELP)
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("tool", metavar="TOOL", nargs="?")
    reader.add_argument("--yes", action="store_true")
    reader.add_argument("-p", "--program", default=".")
    asked = reader.parse_args(words)
    from golem_forge.workers.mcp.known import look

    place = look(asked.program)
    spec = place.spec(asked.name)
    if spec.problem:
        complain("mcp approve", f"'{spec.name}' cannot be used: {spec.problem}")
        return 1
    fresh = not place.book.approved(spec)
    if fresh and asked.tool is not None:  # a yes to a tool must not be one to a config that nobody looked at
        complain("mcp approve", f"'{spec.name}' itself waits for approval; run: forge mcp approve {spec.name}")
        return DENIED
    answer = agree_to_start(place, spec, yes=asked.yes)
    if answer is not Answer.YES:
        return _not_agreed(answer, f"{spec.name} is not approved; it is not started.", [spec.name])
    if fresh:
        print(f"{spec.name} is approved as it is configured.")
    if asked.tool is not None:
        return _one_tool(place, spec, asked.tool, asked.program, yes=asked.yes)
    return _all_tools(place, spec, fresh=fresh, yes=asked.yes)


def _all_tools(place: Place, spec: ServerSpec, *, fresh: bool, yes: bool) -> int:
    listing = place.known(spec.name).listing
    at_stake = waiting(listing) if listing is not None else []
    refused: Answer | None = None
    for each in at_stake:
        answer = _agree(place, spec, each, yes=yes)
        refused = answer if answer is not Answer.YES else refused
    if refused is not None:
        return _not_agreed(refused, "some tools are not approved.", [spec.name])
    if fresh:
        print(f"Sessions start it when they need it; `forge mcp test {spec.name}` does now.")
    elif not at_stake:
        print(f"{spec.name} is approved, and nothing of it waits for approval.")
    return 0


def _one_tool(place: Place, spec: ServerSpec, wanted: str, directory: str, *, yes: bool) -> int:
    listing = place.known(spec.name).listing
    if listing is None:
        from golem_forge.cli.mcp.connecting import tell_failure
        from golem_forge.cli.mcp.connection import NotConnected, connected

        try:
            listing = connected(directory, spec.name).listing
        except NotConnected as refused:
            tell_failure("mcp approve", refused)
            return 1
    found = _find(place, listing, wanted)
    if found is None:
        return _no_tool(spec, listing, wanted)
    if isinstance(found, HeldTool) and found.tool is None:
        complain("mcp approve", f"'{found.name}' cannot be approved: {found.reason.value}: {found.message}")
        return 1
    if not is_waiting(found):
        print(one_line(f"{found.name} is approved as it is."))
        return 0
    answer = _agree(place, spec, found, yes=yes)
    if answer is Answer.YES:
        return 0
    return _not_agreed(answer, f"'{found.name}' is not approved.", [spec.name, found.name])


def _agree(place: Place, spec: ServerSpec, one: HeldTool | RemoteTool, *, yes: bool) -> Answer:
    """Shows the change, or the whole of a new definition, and asks. A yes is in the book afterwards."""
    name = one_line(one.name)
    tool, text = definition_at_stake(one)
    say(f"\nThe tool '{name}' of {spec.name} {'changed' if isinstance(one, HeldTool) else 'is new'}:\n{text}")
    answer = ask(f"Use '{name}' as it is now?", yes=yes)
    if answer is Answer.YES:
        place.book.pin(spec.scope, tool)
        print(f"{name} is approved as it is now.")
    return answer


def _find(place: Place, listing: Listing, wanted: str) -> HeldTool | RemoteTool | None:
    """By its own name, else by the one that callers use."""
    from golem_forge.workers.mcp.known import names_of

    names = names_of([each.listing for each in place.all() if each.spec.name != listing.server] + [listing])
    own = (one for one in every(listing) if wanted in (one.name, one.identity[1]))
    others = (one for one in every(listing) if names[one.identity] == wanted)
    return next(own, None) or next(others, None)


def _no_tool(spec: ServerSpec, listing: Listing, wanted: str) -> int:
    from golem_forge.core.nearest import nearest

    close = nearest(wanted, [one.name for one in every(listing)])
    hint = f" (did you mean '{close}'?)" if close else ""
    complain("mcp approve", f"{spec.name} has no tool '{wanted}'{hint}. `forge mcp show {spec.name}` lists them.")
    return 4


def _not_agreed(answer: Answer, text: str, words: list[str]) -> int:
    import shlex

    if answer is Answer.NOBODY:
        again = shlex.join(["forge", "mcp", "approve", *words, "--yes"])
        text = f"nobody can be asked here. Read the text above, then run `{again}`."
    complain("mcp approve", text)
    return DENIED
