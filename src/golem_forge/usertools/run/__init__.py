"""One run of a user tool in its walls, from approved values to a ToolCompletion.

Takes a ToolRun, in which everything was judged and approved. Nothing that the tool does raises: a timeout, a cancel,
endless output, a signal; all of that is a ToolCompletion, and the output so far is kept. Raises where nothing was
started: ToolFailed (a variable that is not set), SandboxError (no walls).

`process_input` turns values into flags, environment or standard input, byte for byte, and fills in defaults. Refuses
with InputInvalid, naming the parameter, what cannot reach a process unchanged: NUL, broken Unicode, numbers that are
not finite, more than the kernel passes on. Threat: a value that becomes a second argument or a shell's word; each is
one element of argv, begins with its own parameter's `--name=`, and no shell sees it.

`tool_environment` is the complete environment of a run. Threat: the values of declared variables are secrets, so the
Redactor knows each before anybody else has it, and one that cannot be kept out of output is not passed on.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from golem_forge.core.calls import Caller, ToolCompletion
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.events.redaction import IS_CREDENTIAL, MIN_SECRET, Redactor, classify_name
from golem_forge.policy.rules.model import is_mirror
from golem_forge.sandbox.walls.model import HostGrant, Job, ShownPath, StartDirectory, Streams, UncoveredPath
from golem_forge.sandbox.walls.walls import WalledChild
from golem_forge.tools.context import ToolContext
from golem_forge.tools.live_output import wait_to_end
from golem_forge.tools.validation import InputInvalid
from golem_forge.usertools.build.requirements import packages_hint
from golem_forge.usertools.folder import BUILD_DIR, ProgramKind, ToolEntry, ToolProgram
from golem_forge.usertools.manifest import (
    ArgumentStyle,
    BooleanFlags,
    Parameter,
    ParameterType,
    ToolManifest,
    argument_variable,
)
from golem_forge.usertools.run.access import ToolAccess, manifest_hosts
from golem_forge.usertools.run.call_server import CallServer
from golem_forge.usertools.run.interpreter import InterpreterPool, python_job
from golem_forge.usertools.run.output import FinishedRun, finish_run

StartProgram = Callable[[], Awaitable["WalledChild"]]


BackgroundRunner = Callable[[StartProgram, ToolContext, float], Awaitable[ToolCompletion]]
"""Runs a `background` tool on after its call has answered; set by the owner of the exec sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    entry: ToolEntry
    program: ToolProgram
    input: ProcessInput
    access: ToolAccess
    timeout: float
    """Timeout in seconds; may be a fraction."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The environment that declared variables are copied from."""
    lifted: frozenset[str] = frozenset()
    """Masked paths that this call's approved effects name."""
    only: tuple[ShownPath, ...] | None = None
    """The only parts of the zones that it sees; None means all of its zones."""
    not_kept: tuple[tuple[str, UncoveredPath], ...] = ()
    """Paths that are read-only for a call without a question."""
    call_server: CallServer | None = None
    """Serves the calls of a tool with `calls`, as long as it runs."""
    background_runner: BackgroundRunner | None = None
    """Set for a `background` tool."""


async def run_tool(run: ToolRun, ctx: ToolContext) -> ToolCompletion:
    if run.call_server is None:
        return await _run_with_endpoint(run, None, ctx)
    async with run.call_server as call_server:
        return await _run_with_endpoint(run, call_server, ctx)


async def _run_with_endpoint(run: ToolRun, call_server: CallServer | None, ctx: ToolContext) -> ToolCompletion:
    job = await _job(run, call_server, ctx)
    # Called by another tool it ends with its call: a session would outlive whoever asked for it, and its time.
    if run.entry.manifest.background and run.background_runner is not None and ctx.caller is not Caller.TOOL:
        merged = replace(job, streams=Streams.MERGED)  # one text, as a session is read
        return await run.background_runner(lambda: start_program(run, merged, ctx), ctx, run.timeout)
    return await _run_to_end(run, job, ctx)


async def start_program(run: ToolRun, job: Job, ctx: ToolContext) -> WalledChild:
    """The one place that decides how a program is started: Python by an interpreter that may have been started ahead,
    anything else as it is. `job` has its arguments already."""
    if run.program.kind is not ProgramKind.PYTHON:
        return await run.access.walls.start(job)
    interpreter = await ctx.parts.get(InterpreterPool).take(run.access.walls, await _interpreter_job(run, job))
    return await interpreter.run(run.program.script, run.input.argv, run.input.stdin, job.path_first)


def _unread_packages(run: ToolRun) -> str:
    """Returns a hint for a script without packages if another file in its folder names some."""
    has_packages = any(each.inner == BUILD_DIR for each in run.program.shown)
    if run.program.kind is not ProgramKind.PYTHON or has_packages:
        return ""
    return packages_hint((fact.path for fact in run.entry.files), run.entry.manifest.entrypoint)


async def _interpreter_job(run: ToolRun, job: Job) -> Job:
    return python_job(replace(job, stdin=None), run.program, await run.access.walls.level())


async def _run_to_end(run: ToolRun, job: Job, ctx: ToolContext) -> ToolCompletion:
    began = time.monotonic()
    walled = await start_program(run, job, ctx)
    ending = await wait_to_end(walled, ctx, run.timeout)
    assert walled.child.errors is not None  # the streams were asked for apart
    ran = FinishedRun(
        manifest=run.entry.manifest,
        ending=ending,
        out=walled.child.output,
        err=walled.child.errors,
        after=walled.aftermath(),
        seconds=time.monotonic() - began,
        timeout=run.timeout,
        access=run.access,
        unread_packages=_unread_packages(run),
    )
    # Walls that may write keep placeholders in zones, and the next call has other paths.
    if run.program.kind is ProgramKind.PYTHON and job.reads_only and job.only is None:
        ctx.parts.get(InterpreterPool).prepare(run.access.walls, await _interpreter_job(run, job))
    return await finish_run(ran, ctx)


async def _job(run: ToolRun, call_server: CallServer | None, ctx: ToolContext) -> Job:
    manifest, program = run.entry.manifest, run.program
    declared = declared_values(manifest, run.environ, ctx.redactor)
    level = await run.access.walls.level()
    place = RunInfo(
        workspace=run.access.workspace(level),
        tool_dir=program.tool_dir,
        session_id=ctx.session_id,
        call_id=ctx.call_id,
        timeout=run.timeout,
    )
    script = (program.script,) if program.kind is ProgramKind.PYTHON else ()
    hosts = manifest_hosts(manifest)
    granted = (HostGrant(*host, private=ctx.host_rule(*host).private or is_mirror(*host)) for host in hosts)
    return Job(
        argv=(*program.argv, *script, *run.input.argv),
        cwd=f"/{run.access.sandbox.default_zone}" if run.access.sandbox.default_zone else "",
        nowhere=StartDirectory.TEMPORARY,
        env=tool_environment(run.entry, place, declared) | run.input.env | (call_server.env if call_server else {}),
        streams=Streams.APART,
        hosts=tuple(granted),
        shares_network=manifest.network is True,
        lifted=run.lifted,
        only=run.only,
        not_kept=run.not_kept,
        reads_only=run.access.reads_only or (run.only is not None and not any(each.writable for each in run.only)),
        stdin=run.input.stdin,
        path_first=call_server.path if call_server else (),
        shown=(*program.shown, *(call_server.shown if call_server else ())),
    )


LONGEST_ARGUMENT: Final = 128 * 1024
"""The kernel takes no longer argument or variable, its end included."""
_MOST_TOGETHER: Final = 1 << 20
"""Maximum bytes of all arguments: half of what the kernel accepts with the usual stack limit."""
_OVERHEAD_PER_WORD: Final = 16
_USE_STDIN_JSON: Final = "declare `arguments: stdin-json` in tool.yaml to pass it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInput:
    argv: tuple[str, ...] = ()
    """The arguments after the program."""
    env: dict[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    """None means empty standard input."""


def process_input(manifest: ToolManifest, values: Mapping[str, Any], *, paths: Mapping[str, str]) -> ProcessInput:
    """`paths`: for each `path` parameter that has a value, where that file stands inside the walls."""
    given = _values_in_order(manifest, values, paths)
    if manifest.arguments is ArgumentStyle.STDIN_JSON:
        return ProcessInput(stdin=f"{_json({parameter.name: value for parameter, value in given}, '')}\n".encode())
    if manifest.arguments is ArgumentStyle.ENV:
        env = {argument_variable(parameter.name): _env_value(parameter, value) for parameter, value in given}
        _check_size(env.items())
        return ProcessInput(env=env)
    argv = tuple(flag for parameter, value in given for flag in _flags(manifest, parameter, value))
    _check_size((flag, "") for flag in argv)
    return ProcessInput(argv=argv)


def _values_in_order(
    manifest: ToolManifest, values: Mapping[str, Any], paths: Mapping[str, str]
) -> list[tuple[Parameter, Any]]:
    """Returns the values in declared order, with defaults; absent ones are left out."""
    known = {parameter.name for parameter in manifest.parameters}
    for name in values:
        if name not in known:
            raise _invalid_argument(name, "unknown parameter")
    given: list[tuple[Parameter, Any]] = []
    for parameter in manifest.parameters:
        name = parameter.name
        if name in paths:
            given.append((parameter, paths[name]))
        elif name in values:
            given.append((parameter, _as_declared(parameter, values[name])))
        elif parameter.has_default:
            given.append((parameter, parameter.default))
        elif parameter.required:
            raise _invalid_argument(name, "missing required parameter")
    return given


def _as_declared(parameter: Parameter, value: Any) -> Any:
    """`3.0` is an integer to JSON Schema, and not to many programs that read JSON."""
    kind = parameter.items if parameter.type is ParameterType.ARRAY else parameter.type
    if kind is not ParameterType.INTEGER:
        return value
    if isinstance(value, list | tuple):
        return [int(item) if isinstance(item, float) and item.is_integer() else item for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flags(manifest: ToolManifest, parameter: Parameter, value: Any) -> Iterator[str]:
    name = parameter.name
    if parameter.type is ParameterType.BOOLEAN and isinstance(value, bool):
        style = parameter.flag or manifest.boolean_flags
        if style is BooleanFlags.EQUALS:
            yield f"--{name}={_number_text(value)}"
        elif value:
            yield f"--{name}"
        elif style is BooleanFlags.PAIR:
            yield f"--no-{name}"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield _flag(name, item, f"{name}[{index}]")
    else:
        yield _flag(name, value, name)


def _flag(name: str, value: Any, place: str) -> str:
    flag = f"--{name}={_text(value, place)}"
    if len(flag) >= LONGEST_ARGUMENT // 4 and len(flag.encode()) >= LONGEST_ARGUMENT:
        raise _invalid_argument(place, f"is longer than 128 KiB; {_USE_STDIN_JSON}")
    return flag


def _env_value(parameter: Parameter, value: Any) -> str:
    name = parameter.name
    text = _json(value, name) if isinstance(value, list | tuple) else _text(value, name)
    if len(argument_variable(name)) + 1 + len(text.encode()) >= LONGEST_ARGUMENT:
        raise _invalid_argument(name, f"is longer than 128 KiB; {_USE_STDIN_JSON}")
    return text


def _check_size(words: Any) -> None:
    size = sum(len(name.encode()) + len(value.encode()) + _OVERHEAD_PER_WORD for name, value in words)
    if size > _MOST_TOGETHER:
        raise InputInvalid(f"the arguments are together longer than 1 MiB; {_USE_STDIN_JSON} more")


def _text(value: Any, place: str) -> str:
    """Returns a scalar as the text that a program reads."""
    if isinstance(value, str):
        if "\0" in value:
            raise _invalid_argument(place, "contains a NUL byte, which no argument of a program can hold")
        return _check_unicode(value, place)
    if isinstance(value, bool | int | float):
        return _number_text(value, place)
    raise _invalid_argument(place, f"cannot be passed this way; {_USE_STDIN_JSON}")


def _number_text(value: bool | int | float, place: str = "") -> str:
    """`true`, `20`, `3.14`: the shortest decimal that reads back to the same number, without an exponent."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return format(Decimal(value), "f")  # `str` refuses some thousand digits and more
    if not math.isfinite(value):
        raise _invalid_argument(place, "must be a finite number")
    return format(Decimal(repr(float(value))), "f").removesuffix(".0")


def _json(value: Any, place: str) -> str:
    """Compact JSON of plain data. Text that JSON cannot say in UTF-8, and numbers that are none, are refused."""
    if isinstance(value, list | tuple):
        return f"[{','.join(_json(item, f'{place}[{index}]') for index, item in enumerate(value))}]"
    if isinstance(value, Mapping):
        members = []
        for key, item in value.items():
            if not isinstance(key, str):
                raise _invalid_argument(place, "is not a JSON value")
            inner = _check_unicode(f"{place}.{key}" if place else key, place)
            members.append(f"{_json(key, place)}:{_json(item, inner)}")
        return f"{{{','.join(members)}}}"
    if isinstance(value, str):
        return json.dumps(_check_unicode(value, place), ensure_ascii=False)
    if isinstance(value, bool | int):
        return _number_text(value, place)
    if isinstance(value, float):
        _number_text(value, place)
        return repr(float(value))
    if value is None:
        return "null"
    raise _invalid_argument(place, "is not a JSON value")


def _check_unicode(text: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid_argument(place, "is not valid Unicode") from None
    return text


def _invalid_argument(place: str, problem: str) -> InputInvalid:
    place = place.encode("utf-8", "replace").decode()
    return InputInvalid(f"{place}: {problem}", fields=((place, problem),))


_MIN_UNNAMED_SECRET: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Information about place and time that a run gets."""

    workspace: str = ""
    """The path of the default zone inside the walls; empty without one."""
    tool_dir: str
    session_id: str = ""
    call_id: str = ""
    timeout: float


def declared_values(manifest: ToolManifest, environ: Mapping[str, str], redactor: Redactor | None) -> dict[str, str]:
    """The manifest's `env` as it is right now. Call it when planning too: what is missing needs no prompt, and a card
    is shown only after its values are known as secrets. Raises ToolFailed."""
    values: dict[str, str] = {}
    for declared in manifest.env:
        value = environ.get(declared.name)
        if value is None:
            if declared.required:
                raise ToolFailed(f"environment variable {declared.name} is not set", code="VARIABLE_NOT_SET")
            continue
        _register_secret(declared.name, value, redactor)
        values[declared.name] = value
    return values


def register_secrets(manifest: ToolManifest, environ: Mapping[str, str], redactor: Redactor | None) -> None:
    """Adds the manifest's declared secrets to the redactor when a tool's folder is read, whether or not it ever runs. A
    value whose name is no credential must be long enough not to match ordinary words.
    """
    for declared in manifest.env:
        value = environ.get(declared.name, "")
        long_enough = len(value.strip()) >= _MIN_UNNAMED_SECRET or classify_name(declared.name) == IS_CREDENTIAL
        if redactor is not None and long_enough and value not in redactor.secrets:
            redactor.add_secret(declared.name, value)


def tool_environment(entry: ToolEntry, place: RunInfo, declared: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of a user tool's Job, besides those of every child. `declared`: from `declared_values`, or
    a test's own.
    """
    return {
        **declared,
        **({"FORGE_WORKSPACE": place.workspace} if place.workspace else {}),
        "FORGE_TOOL_NAME": entry.name,
        "FORGE_TOOL_DIR": place.tool_dir,
        "FORGE_TOOL_VERSION": entry.manifest.version,
        "FORGE_SESSION_ID": place.session_id,
        "FORGE_CALL_ID": place.call_id,
        # Whole seconds, as `date +%s` counts them, and never one that is over before the time is.
        "FORGE_DEADLINE": str(math.ceil(time.time() + place.timeout)),
    }


def _register_secret(name: str, value: str, redactor: Redactor | None) -> None:
    if redactor is None or not value or value in redactor.secrets:
        return
    problem = redactor.add_secret(name, value)
    # `DEBUG=1` is no secret, and taking every 1 out of every text would help nobody.
    harmless = len(value.strip()) < MIN_SECRET and classify_name(name) != IS_CREDENTIAL
    if problem is not None and not harmless:
        raise ToolFailed(
            f"environment variable {name} cannot be kept out of output: its value is too short or too long. "
            "Nothing was started.",
            code="SECRET_UNRESOLVED",
        )
