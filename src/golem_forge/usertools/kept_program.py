"""From a program that worked to a tool: what `create_custom_tool(from_run=…)` and `/keep` write.

`find_program` reads the journal: the text of a successful `run_code`, the calls it made and what each gave, what it
printed and answered. `kept_tool` makes a request for a new tool of it: the same text, with each parameter in the place
of the literals it stands for; `calls` is what was really called; a test answers the recorded calls again and expects
the recorded result. Raises InputInvalid.

A run whose record is not exactly what happened gets no test, and `why_untested` says so: something secret was taken out
of it, a result was no text or too long to be kept whole, or the program learned something without a call, from a file
or by a search for tools.
Threats: a parameter that becomes code (a literal is replaced by an expression of a fixed form, whose only free part is
a name that was checked, and the result must parse to the same program with these literals replaced); the text of a
program with a secret in it (refused: what is left of it is another program).
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import same_json
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import clip, escape_control_chars
from golem_forge.events.journal_records import CallRecord, CallRecords, join_records, read
from golem_forge.usertools.call_sequences import is_redacted
from golem_forge.usertools.manifest import OutputFormat, ToolManifest
from golem_forge.usertools.native_tools import RUN_CODE, RUN_TOOL_NAME, invalid_field
from golem_forge.usertools.run.tool_values import RecordedCall, Recording, value_of_kind

if TYPE_CHECKING:
    from golem_forge.usertools.create import NewTool

RECORDING_FILE: Final = "recorded_calls.json"
LARGEST_RECORDING: Final = 256 * 1024
KEPT_TIMEOUT_S: Final = 300
"""Timeout of the tool; its calls may wait for a person."""
_PARAMETERS: Final = "forge_parameters"
_PRELUDE: Final = (
    f"import json as _json, sys as _sys\n\n{_PARAMETERS} = _json.load(_sys.stdin)"
    "  # in the place of literals of the program\n\n"
)
_READERS: Final = frozenset({"open", "os", "pathlib", "glob", "io", "subprocess", "shutil", "fileinput", "tempfile"})
"""Names by which a program reads files itself."""
_CLIENTS: Final = frozenset({"forge_tools", "tools", "forge_tool"})
_LONGEST_SHOWN: Final = 80
_LONGEST_EXPECTED: Final = 16 * 1024
_SCALAR_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}
_NOT_CALLED: Final = frozenset({Status.APPROVAL_DENIED.value, Status.POLICY_DENIED.value, Status.TOOL_NOT_FOUND.value})
_UNRECORDED: Final = frozenset({"search", "help", "ResultHandle"})
"""Names of `forge_tools` that ask for what no recording has."""
_NEW_LINE: Final = regex(rb"\r\n|\r|\n")
"""What Python counts as the end of a line; `str.splitlines` knows more."""

OutputOf = Callable[[str], OutputFormat | None]
"""Returns the output format of a user tool by its name; None for other tools."""
ParametersOf = Callable[[str], Sequence[str]]
"""The names of a tool's parameters, in the order in which a program may give them; none where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedProgram:
    call: str
    code: str
    calls: tuple[CallRecord, ...]
    """The program's own calls, in order."""
    value: Mapping[str, Any]
    """The program's result."""

    @property
    def called(self) -> tuple[str, ...]:
        """The tools that were called and not denied, each once, in the order of their first calls."""
        return tuple(dict.fromkeys(each.tool for each in self.calls if each.status not in _NOT_CALLED))


def find_program(journal: Path | None, call: str) -> RecordedProgram:
    """`call`: the id of a successful `run_code`, or `last`. Raises InputInvalid."""
    states, programs = CallRecords(), set[str]()
    try:
        for record in join_records(read(journal)) if journal is not None else ():
            one = states.add(record)
            if one is None:
                continue
            if one.tool == RUN_CODE and not one.parent:
                programs.add(one.id)
            elif one.finished_at and one.parent not in programs:
                del states.calls[one.id]  # a session may be long, and only programs count
    except (OSError, ValueError):
        raise invalid_field("from_run", "the journal of this session cannot be read") from None
    ran = [each for each in states.calls.values() if each.id in programs]
    done = [each for each in ran if each.status == Status.SUCCESS.value]
    found = done[-1:] if call == "last" else [each for each in ran if each.id == call]
    if not found:
        known = f"; the last one that succeeded is {done[-1].id}" if done else ""
        wanted = "no program" if call == "last" else f"no {RUN_CODE} call '{escape_control_chars(call[:80])}'"
        raise invalid_field("from_run", f"{wanted} in this session{known}")
    (one,) = found
    if one.status != Status.SUCCESS.value:
        raise invalid_field("from_run", f"that program ended with {one.status or 'nothing yet'}; keep one that worked")
    code = one.args.get("code") if isinstance(one.args, Mapping) else None
    if not isinstance(code, str) or is_redacted(code):
        raise invalid_field("from_run", "that program holds a secret, which was not recorded; write it without")
    inside = tuple(each for each in states.calls.values() if each.parent == one.id)
    value = one.value if isinstance(one.value, Mapping) else {}
    return RecordedProgram(call=one.id, code=code, calls=inside, value=value)


def kept_tool(
    program: RecordedProgram,
    base: NewTool,
    literals: Mapping[str, Any],
    output_of: OutputOf,
    parameters_of: ParametersOf,
) -> tuple[NewTool, str]:
    """The tool to make, and why it has no test; empty: it has one. `base`: its name, description, usage and version;
    `literals`: parameter → the literal of the program that it replaces. Raises InputInvalid, and RecursionError for a
    program that is nested too deep."""
    tree = _parsed(program.code)
    if names := ", ".join(sorted({each.tool for each in program.calls if each.requested == RUN_TOOL_NAME})):
        raise invalid_field(
            "from_run", f"that program used {RUN_TOOL_NAME}; let it call {names} by name, and run it again"
        )
    if not program.called and _imports(tree) & _CLIENTS:
        raise invalid_field("from_run", "that program called no tool; give its text as `source` instead")
    source = with_parameters(program.code, literals)
    answered, printed = "answer" in program.value, program.value.get("stdout", "")
    as_json = answered and not printed
    made = replace(
        base,
        source=source,
        parameters=[_parameter(name, value) for name, value in literals.items()],
        manifest={
            "timeout": KEPT_TIMEOUT_S,
            **({"arguments": "stdin-json"} if literals else {}),
            **({"calls": list(program.called)} if program.called else {}),
            **({"output": "json"} if as_json else {}),
        },
    )
    why = why_untested(program, tree)
    recording = b""
    if not why:
        calls = [_recorded(each, output_of) for each in program.calls]
        order = {name: list(parameters_of(name)) for name in dict.fromkeys(each.name for each in calls)}
        recording = Recording(calls=tuple(calls), parameters=order).to_bytes()
        if len(recording) > LARGEST_RECORDING:
            why = f"its calls and their results are longer than {LARGEST_RECORDING // 1024} KiB"
    if why:
        return made, why
    case: dict[str, Any] = {"name": "replays the run", "arguments": dict(literals), "expect": _expected(program)}
    if program.calls:
        case["calls"] = RECORDING_FILE
        made = replace(made, files={RECORDING_FILE: recording})
    return replace(made, tests=[case]), ""


def why_untested(program: RecordedProgram, tree: ast.Module) -> str:
    """Why no test can be made of what was recorded; empty: one can."""
    if is_redacted([program.value, *([each.args, each.value] for each in program.calls)]):
        return "the run read or wrote something secret, which was not recorded"
    if any("secret file is not recorded" in str(each.value) for each in program.calls):
        return "the run read a secret file, which was not recorded"
    if any(each.more.get("media") for each in program.calls):
        return "a call gave an image or another blob, which is not recorded"
    if names := sorted(_client_names(tree) & _UNRECORDED):
        return f"the program uses {', '.join(names)} of forge_tools, and a test has the recorded calls alone"
    if "code" in _attributes(tree) and any(each.status != Status.SUCCESS.value for each in program.calls):
        return "the program looks at the code of a call that failed, which is not recorded"
    whole = (_is_whole(each) for each in program.calls)
    if program.value.get("truncated") or not all(whole):
        return "a result was too long to be recorded whole"
    if names := sorted((_imports(tree) | _names(tree)) & _READERS):
        return f"the program may read files itself ({', '.join(names)}), and a test has none of them"
    if len(json.dumps(program.value, default=str)) > _LONGEST_EXPECTED:
        return "its result is too long to be written into a test"
    return ""


def _is_whole(call: CallRecord) -> bool:
    value = call.value if isinstance(call.value, Mapping) else {}
    return not (call.output_handle or call.more.get("truncated") or "leftOut" in value or "tooLong" in str(call.args))


def _recorded(call: CallRecord, output_of: OutputOf) -> RecordedCall:
    args = call.args if isinstance(call.args, Mapping) else {}
    if call.status != Status.SUCCESS.value:
        return RecordedCall(name=call.requested or call.tool, arguments=args, status=call.status, error=call.error)
    value = call.value if isinstance(call.value, Mapping) else {"kind": "text", "content": ""}
    given = value_of_kind(value)
    if value.get("kind") == "tool.output":
        given = value.get("stdout", "")
        if output_of(call.tool) is OutputFormat.JSON:
            with contextlib.suppress(ValueError):
                given = json.loads(given)
    return RecordedCall(name=call.requested or call.tool, arguments=args, value=given)


def _expected(program: RecordedProgram) -> dict[str, Any]:
    printed, value = str(program.value.get("stdout", "")), program.value
    if "answer" not in value:
        return {"stdout": printed}
    if not printed:
        return {"json": value["answer"]}
    # Both are printed by a tool, the answer where the program gave it.
    lines = [line for line in printed.splitlines() if line.strip()]
    ends = dict.fromkeys((*lines[:1], *lines[-1:]))
    return {"stdout_contains": [*ends, json.dumps(value["answer"], ensure_ascii=False)]}


def _parameter(name: str, value: Any) -> dict[str, Any]:
    shown = clip(escape_control_chars(json.dumps(value, ensure_ascii=False)), _LONGEST_SHOWN)
    about = {"name": name, "description": f"in the place of {shown}", "required": True}
    if isinstance(value, list):
        kinds = {_SCALAR_TYPES.get(type(item), "") for item in value} or {"string"}
        if len(kinds) > 1 or "" in kinds:
            raise invalid_field("parameters", f"{name}: a list must hold texts, numbers or booleans, all of one kind")
        (items,) = kinds
        return {**about, "type": "array", "items": items}
    if isinstance(value, dict):
        return {**about, "type": "object"}
    kind = _SCALAR_TYPES.get(type(value))
    if kind is None:
        raise invalid_field("parameters", f"{name}: null cannot be a parameter")
    return {**about, "type": kind}


# ---- the text of the program


def with_parameters(code: str, literals: Mapping[str, Any]) -> str:
    """The program with an expression in the place of each literal. Raises InputInvalid."""
    tree = _parsed(code)
    if not literals:
        return code
    if _PARAMETERS in _names(tree):
        raise invalid_field(
            "from_run", f"the program has a name '{_PARAMETERS}' of its own; rename it and run it again"
        )
    places: list[tuple[ast.expr, str]] = []
    own_keys = _own_keys(tree)
    for name, value in literals.items():
        found = [node for node in _replaceable(tree, own_keys) if _is_literal(node, value)]
        if not found:
            shown = clip(json.dumps(value, ensure_ascii=False), _LONGEST_SHOWN)
            raise invalid_field("parameters", f"{name}: the program has no literal {shown}")
        places += [(node, name) for node in found]
    text = code.encode()
    starts = _line_starts(text)
    order = sorted(places, key=lambda place: _span(place[0], starts))
    pieces, at = [], 0
    for node, name in order:
        start, end = _span(node, starts)
        if start < at:
            raise invalid_field("parameters", f"{name}: its literal is a part of another parameter's")
        pieces += [text[at:start], f"{_PARAMETERS}[{json.dumps(name)}]".encode()]
        at = end
    replaced = b"".join([*pieces, text[at:]]).decode()
    whole = _with_prelude(replaced)
    _check_same(code, whole, literals)
    return whole


def _parsed(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise invalid_field("from_run", "that program cannot be read as Python") from None


def _own_keys(tree: ast.AST) -> set[Any]:
    """The texts that the program itself makes keys of."""
    made: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            made += node.keys
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            made.append(node.slice)
    return {each.value for each in made if isinstance(each, ast.Constant)}


def _replaceable(tree: ast.AST, own_keys: Collection[Any]) -> Iterator[ast.expr]:
    """Expressions that are literals where an expression may stand: not in an f-string, a pattern or a docstring, and
    not `found["files"]`, the name of a member of what somebody else made."""
    for child in ast.iter_child_nodes(tree):
        docstring = isinstance(tree, ast.Expr) and isinstance(child, ast.Constant)
        member = isinstance(tree, ast.Subscript) and child is tree.slice
        if member and isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value not in own_keys:
            continue
        if isinstance(child, (ast.JoinedStr, ast.pattern)) or docstring:
            continue
        if isinstance(child, ast.expr) and _literal_value(child) is not _NO_LITERAL:
            yield child
        yield from _replaceable(child, own_keys)


_NO_LITERAL: Final = object()


def _literal_value(node: ast.expr) -> Any:
    if not isinstance(node, (ast.Constant, ast.List, ast.Dict, ast.UnaryOp)):
        return _NO_LITERAL
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return _NO_LITERAL


def _is_literal(node: ast.expr, value: Any) -> bool:
    found = _literal_value(node)
    if type(found) is not type(value):
        return False
    try:
        return same_json(found, value)
    except (ValueError, TypeError):
        return False


def _line_starts(text: bytes) -> list[int]:
    return [0, *(end.end() for end in _NEW_LINE.finditer(text))]


def _span(node: ast.expr, starts: Sequence[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def _with_prelude(code: str) -> str:
    """Inserts the prelude before the first statement that is neither a docstring nor a future import."""
    first = next((node for node in _parsed(code).body if not _comes_first(node)), None)
    text = code.encode()
    if first is None:
        return f"{code}\n{_PRELUDE}"
    line = first.lineno
    if isinstance(first, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and first.decorator_list:
        line = first.decorator_list[0].lineno
    place = _line_starts(text)[line - 1]
    return b"".join((text[:place], _PRELUDE.encode(), text[place:])).decode()


def _comes_first(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _check_same(before: str, text: str, literals: Mapping[str, Any]) -> None:
    """Threat: a text that was cut at the wrong place is another program. What is left must differ by these literals."""

    class Back(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            named = isinstance(node.value, ast.Name) and node.value.id == _PARAMETERS
            if named and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                literal = ast.parse(repr(literals[node.slice.value]), mode="eval")
                assert isinstance(literal, ast.Expression)
                return literal.body
            return self.generic_visit(node)

    class Plain(ast.NodeTransformer):
        """Literals in one spelling."""

        def generic_visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.expr) and (value := _literal_value(node)) is not _NO_LITERAL:
                return ast.Constant(repr(value))
            return super().generic_visit(node)

    prelude = [ast.dump(node) for node in ast.parse(_PRELUDE).body]
    now = Back().visit(_parsed(text))
    now.body = [node for node in now.body if ast.dump(node) not in prelude]
    if ast.dump(Plain().visit(now)) != ast.dump(Plain().visit(_parsed(before))):
        raise invalid_field("parameters", "the literals cannot be replaced in this program; write the tool's `source`")


def _imports(tree: ast.AST) -> set[str]:
    """The modules that it imports, by their first name."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _client_names(tree: ast.AST) -> set[str]:
    """The names of `forge_tools` that it uses."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in _CLIENTS]
    return {each.name for node in imports for each in node.names} | _attributes(tree, _CLIENTS)


def _attributes(tree: ast.AST, of: frozenset[str] = frozenset()) -> set[str]:
    """The attributes it uses: of anything, or of these names."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {each.attr for each in found if not of or (isinstance(each.value, ast.Name) and each.value.id in of)}


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def read_recording(folder: Path, manifest: ToolManifest, file: str) -> Recording:
    """Reads the recording of a test case. Raises ForgeError with a text for its author."""
    path = folder / file
    try:
        if path.stat().st_size > LARGEST_RECORDING:
            raise ForgeError(f"calls: {file} is longer than {LARGEST_RECORDING // 1024} KiB")
        return Recording.from_bytes(path.read_bytes())
    except OSError:
        raise ForgeError(f"calls: there is no file {file} beside {manifest.entrypoint}") from None
    except ValueError as error:
        raise ForgeError(f"calls: {file}: {error}") from None
