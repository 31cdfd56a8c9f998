"""`forge tools run NAME | test [NAME…] | doctor`: one of a person's own tools run once, its own tests, and why it is
not active.

`run` takes the one path like `forge call`, for a tool that is active or not. `--debug` starts its source in the debug
mode of its language, in the same walls. The name means the person's own tool here, whatever else has it, and exactly
the version that was shown. `test` runs in the strictest walls; `--update` stores what the tool prints now. Both run the
tool's code, so content that nobody agreed to is shown first and asked for, as with `activate`. `doctor` has one line
for each folder, and `--watch` repeats it while they change; tools that were never built are built or checked on the
way, as far as that needs nothing from outside; none of their code runs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session import open_session
from golem_forge.cli.call import CallCommand, ask_person, call_in_session, parse
from golem_forge.cli.command import (
    BY_FLAG,
    DENIED,
    NOT_FOUND,
    CommandUsageError,
    fail,
    print_error,
    print_json,
    progress_message,
    read_args,
    step_drawer,
)
from golem_forge.cli.tools.workshop import (
    ask_trust,
    find_entries,
    find_entry,
    open_workshop,
    print_report,
    print_unread_packages,
)
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import escape_control_chars
from golem_forge.ui.line_terminal import can_ask
from golem_forge.usertools.build import PreparedTool
from golem_forge.usertools.catalog_sync import user_tool
from golem_forge.usertools.diagnostics import Diagnostic
from golem_forge.usertools.expectations import CaseResult, failed_tests_text, update_golden
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.registry import watch_registry
from golem_forge.usertools.trust import (
    BuildFailed,
    TestsFailed,
    check_promotable,
    fetch_and_build,
    inactive_tools,
    make_ready,
    make_trust_card,
    run_required_tests,
    walls_report,
)
from golem_forge.usertools.workshop import Workshop

if TYPE_CHECKING:
    from golem_forge.agent.session import Session
    from golem_forge.policy.request import ApprovalRequest


TEST_HELP: Final = """usage: forge tools test [NAME…] [--update] [--yes] [--json]

Runs the tests in tool.yaml of the tools NAME, or of all user tools. A test has no network and only its own files, and
each starts fresh. If a tool is not trusted, Forge first shows it and asks.

  --update  write what a test prints now into tool.yaml as the expected output; that makes a new version of the tool
  --yes     answer yes to the cards of the tools that you name
  --json    for programs

Exit: 0 all passed, 1 a test failed or a tool could not be built, 2 usage, 3 not agreed, 4 no such tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTestResult:
    name: str
    digest: str
    code: int
    results: tuple[CaseResult, ...] = ()
    error: str = ""
    """Why its tests did not run."""
    updated: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        cases = [
            {"name": one.name, "ok": one.ok, "duration_ms": one.duration_ms, "problems": list(one.problems)}
            for one in self.results
        ]
        return {
            "tool": self.name,
            "digest": self.digest,
            "ok": self.code == 0,
            "cases": cases,
            "error": self.error or None,
            "updated": list(self.updated),
        }


def run_test(words: list[str]) -> int:
    asked = read_args("tools test", TEST_HELP, words, "names:NAME*", "--update", "--yes", "--json")
    if asked.yes and not asked.names:
        return fail("tools test", "--yes answers for the tools that are named; name them.", 2)
    workshop = open_workshop()
    active = [each for each in workshop.registry.entries.values() if not workshop.store.is_retired(each.name)]
    entries = find_entries(workshop, "test", asked.names) if asked.names else tuple(active)
    if entries is None:
        return NOT_FOUND
    run = _TestRun(workshop, asked.yes, update=asked.update, quiet=asked.json)
    tested = asyncio.run(run.all(entries))
    passed = sum(one.ok for each in tested for one in each.results)
    failed = sum(not one.ok for each in tested for one in each.results)
    if asked.json:
        print_json({"tools": [each.to_json() for each in tested], "passed": passed, "failed": failed})
    else:
        print(f"{passed} passed, {failed} failed; {len(tested)} {'tool' if len(tested) == 1 else 'tools'}")
    return max((each.code for each in tested), default=0)


@dataclass(frozen=True, slots=True)
class _TestRun:
    workshop: Workshop
    yes: bool
    update: bool
    quiet: bool
    """Whether only the final JSON goes to standard output."""

    async def all(self, entries: tuple[ToolEntry, ...]) -> list[ToolTestResult]:
        every = []
        for entry in entries:
            try:
                tested = await self._one(entry)
            except ForgeError as error:
                tested = ToolTestResult(name=entry.name, digest=entry.digest, code=1, error=error.message)
            self._print(tested)
            every.append(tested)
        return every

    async def _one(self, entry: ToolEntry) -> ToolTestResult:
        workshop, name, digest = self.workshop, entry.name, entry.digest
        check_promotable(workshop, entry)
        if not entry.manifest.tests:
            return ToolTestResult(name=name, digest=digest, code=0, remarks=("no tests",))
        ready = await make_ready(workshop, entry)
        if not ask_trust(workshop, "test", ready, self.yes):
            return ToolTestResult(name=name, digest=digest, code=DENIED, error="not trusted, so its tests did not run")
        prepared = await fetch_and_build(workshop, ready)
        try:
            results = await run_required_tests(workshop, entry, prepared, report=await walls_report(workshop))
        except TestsFailed as failed:
            results = failed.results
        if self.update:
            return self._updated(entry, results)
        code = 0 if all(one.ok for one in results) else 1
        return ToolTestResult(name=name, digest=digest, code=code, results=results)

    def _updated(self, entry: ToolEntry, results: tuple[CaseResult, ...]) -> ToolTestResult:
        made = update_golden(self.workshop.home, entry, results)
        remarks = list(made.refused)
        if made.updated:
            remarks.append(f"another version now; `forge tools activate {entry.name}` shows the change and asks")
        left = [one for one in results if not one.ok and one.name not in made.updated]
        return ToolTestResult(
            name=entry.name,
            digest=entry.digest,
            code=1 if left else 0,
            results=results,
            updated=made.updated,
            remarks=tuple(remarks),
        )

    def _print(self, tested: ToolTestResult) -> None:
        if tested.error and tested.code != DENIED:  # who did not agree knows it already
            print_error("tools test", tested.error)
        if self.quiet:
            return
        if any(not one.ok and one.name not in tested.updated for one in tested.results):
            print(escape_control_chars(failed_tests_text(tested.name, tested.results)))
        elif tested.results:
            print(f"{tested.name}:")
            for one in tested.results:
                print(escape_control_chars(f"updated {one.name}" if one.name in tested.updated else one.line))
        for remark in tested.remarks:
            print(escape_control_chars(f"{tested.name}: {remark}"))


RUN_HELP: Final = """usage: forge tools run NAME [--param=value …] [--args-json JSON] [--debug] [--yes] [--json]
                       [--approval MODE] [-p DIR]

Runs one of your user tools in the zones of this directory. If the tool is not active, Forge first builds it, shows it,
asks you and tests it.

  --param value     an argument of the tool (--param=value, --flag, --no-flag; repeat for lists)
  --args-json JSON  all arguments as one JSON object; `-` reads it from standard input
  --debug           run its source: Python with -X dev, a shell script with -x, Go by `go run`; in the same walls
  --yes             answer yes to the card of this tool
  --json            the whole Outcome as JSON on standard output
  --approval MODE   interactive, strict, contained, plan, approve_all or auto_deny
  -p, --program DIR run in that directory instead of this one

Exit: 0 success, 1 failed, 2 bad arguments or config, 3 denied, 4 no such tool, 124 timed out, 130 interrupted."""


@dataclass(slots=True)
class _RunArgs:
    call: CallCommand
    yes: bool
    debug: bool


def run_run(words: list[str]) -> int:
    try:
        asked = _parse_args(words)
        if asked.call.help or not asked.call.name:
            print(RUN_HELP)
            return 0 if asked.call.help else 2
        return run_to_exit_code(_run(asked))
    except CommandUsageError as error:
        return fail("tools run", str(error), 2)


def _parse_args(words: list[str]) -> _RunArgs:
    """Flags of its own may stand anywhere before `--`; the rest is as `forge call` reads it."""
    end = words.index("--") if "--" in words else len(words)
    before, after = words[:end], words[end:]
    rest = [word for word in before if word not in ("--debug", "--yes")]
    return _RunArgs(parse([*rest, *after]), "--yes" in before, "--debug" in before)


async def _run(asked: _RunArgs) -> int:
    command = asked.call
    asker = _approval_callback(asked)
    async with open_session(command.program, approval=command.approval, approval_callback=asker) as session:
        assert session.user_tools is not None  # the built-in worker has them
        workshop = session.user_tools.workshop
        workshop.report, workshop.on_step = print_report, step_drawer()
        entry = find_entry(workshop, "run", command.name)
        if entry is None:
            return NOT_FOUND
        if (code := await _check_trust(session, workshop, entry, asked)) != 0:
            return code
        session.refresh()  # what it says of the folder now must not take the place of what is put in next
        program = PreparedTool.debug_program if asked.debug else PreparedTool.program
        session.catalog.add(user_tool(workshop, entry, program=program), replace=True)
        return await call_in_session(session, command)


def _approval_callback(asked: _RunArgs) -> Any:
    """`--yes` answers for the call the person typed; what that calls in turn is asked for by itself."""
    name = asked.call.name
    somebody = can_ask()

    def given(request: ApprovalRequest) -> dict[str, Any]:
        # It answered the card of the shown bytes before: one that asks again is about bytes that came since.
        if request.tool == name and request.caller == "human" and request.type != "definition":
            return {"approved": True}
        return ask_person(request) if somebody else {"approved": False, "reason": "Forge cannot ask you here"}

    if asked.yes:
        return given
    return ask_person if somebody else None


async def _check_trust(session: Session, workshop: Workshop, entry: ToolEntry, asked: _RunArgs) -> int:
    """0, or the exit code; it was said why. At a terminal the call's own card shows the tool and asks."""
    name = entry.name
    if workshop.store.is_retired(name):
        return fail("tools run", f"'{name}' is retired. `forge tools restore {name}` switches it on again.", NOT_FOUND)
    nobody = session.state.controller.mode is ApprovalMode.AUTO_DENY
    if workshop.trusts(entry) or not (asked.yes or nobody):
        return 0
    try:
        check_promotable(workshop, entry)
        ready = await make_ready(workshop, entry)
        print(escape_control_chars(make_trust_card(workshop, ready).full_text), file=sys.stderr)
        if nobody:
            then = f"Read the text above, then run `forge tools activate {name} --yes`, or this again with --yes."
            return fail("tools run", f"'{name}' is not trusted, and Forge cannot ask you here. {then}", DENIED)
        workshop.trust(entry, who=BY_FLAG)
    except ForgeError as error:
        return fail("tools run", error.message, 1)
    return 0


if TYPE_CHECKING:
    Say = Callable[[Workshop, tuple[Diagnostic, ...]], None]

DOCTOR_HELP: Final = """usage: forge tools doctor [--json] [--watch]

Looks at every folder in ~/.forge/tools. If a folder is not an active tool, it says why and what to do. It builds or
checks tools that were never built. It runs none of their code and downloads nothing.

  --json    [{tool, code, message, line?}, …] under `diagnostics`
  --watch   check again after every change, until you press Ctrl-C

Exit: 0 done, 2 usage or configuration."""


def run_doctor(words: list[str]) -> int:
    asked = read_args("tools doctor", DOCTOR_HELP, words, "--json", "--watch")
    workshop = open_workshop()
    say = _print_found_json if asked.json else _print_found
    asyncio.run(_watch(workshop, say) if asked.watch else _examine(workshop, say))
    return 0


async def _watch(workshop: Workshop, say: Say) -> None:
    await _examine(workshop, say)
    async for _ in watch_registry(workshop.registry):
        await _examine(workshop, say)


async def _examine(workshop: Workshop, say: Say) -> None:
    await _build_unbuilt(workshop)
    for entry in workshop.registry.entries.values():
        if entry.manifest.entrypoint.endswith(".py") and not workshop.store.is_retired(entry.name):
            with suppress(ForgeError):  # a snapshot that is lost is diagnosed by whoever needs it
                print_unread_packages(workshop, entry)
    say(workshop, inactive_tools(workshop))
    sys.stdout.flush()  # whoever reads it through a pipe waits for it as well


async def _build_unbuilt(workshop: Workshop) -> None:
    """Records what can be found out without running any of their code."""
    unbuilt = [
        entry
        for entry in workshop.registry.entries.values()
        if not workshop.store.build_status(entry.name, entry.digest).built and not workshop.store.is_retired(entry.name)
    ]
    for number, entry in enumerate(unbuilt, 1):
        try:
            with progress_message(f"building or checking '{entry.name}' ({number} of {len(unbuilt)}) …"):
                await make_ready(workshop, entry)
        except BuildFailed:
            continue  # it is recorded, with the reason
        except ForgeError as error:
            print_error("tools doctor", f"Forge could not build or check the tools: {error.message}")
            return


def _print_found_json(workshop: Workshop, found: tuple[Diagnostic, ...]) -> None:
    faulty = {each.tool for each in found}
    active = [name for name in workshop.registry.entries if name not in faulty]
    print_json({"active": active, "diagnostics": [each.to_json() for each in found]})


def _print_found(workshop: Workshop, found: tuple[Diagnostic, ...]) -> None:
    faulty = {each.tool for each in found}
    active = sum(name not in faulty for name in workshop.registry.entries)
    for each in found:
        first, *more = each.text.splitlines()
        print(escape_control_chars(f"{each.tool or workshop.display_folder('')}: {first}"))
        for line in more:
            print(escape_control_chars(f"    {line}"))
    tools, folders = "tool is" if active == 1 else "tools are", "folder is" if len(found) == 1 else "folders are"
    print(escape_control_chars(f"{active} {tools} active, {len(found)} {folders} not; {workshop.display_folder('')}"))
