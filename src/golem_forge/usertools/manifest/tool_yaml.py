"""The text of a `tool.yaml`: read into a ToolManifest by every rule of the format, written, and edited in place.

`read_manifest` refuses with Unusable: one code, one message that starts with `tool.yaml:` and names the key, one line.
The first problem in the order of the file is reported; how keys fit together is checked after each is valid by itself.
Nothing is read but these bytes: whether the entrypoint exists is checked with the folder. `manifest_from_values` holds
values that came from no file (what a model asks for) against the same rules. `tests` are read last: their arguments are
read by the types of the parameters. An argument that does not fit its parameter is kept as written; the run refuses it,
and a test may be there to show that.

`manifest_text` gives YAML that reads back equal, with only what differs from the defaults. `yaml_text` quotes text
that some reader could take for a number, a date or a boolean; text over several lines becomes a literal block; control
and hidden characters become escapes, so the file never hides anything from its reader.

`rename_manifest` changes the value of `name` (SharingError if the result would not read as the same tool under the new
name). `set_expected_stdout` sets `expect.stdout` of test cases; the caller checks the result by reading it back. Both
leave every other byte as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from golem_forge.config.validation import Check, MappingSchema, changed_fields, flag
from golem_forge.config.yaml_edit import compose, find_pair, find_value
from golem_forge.config.yaml_file import YamlFile, YamlPath, is_no_text
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError
from golem_forge.usertools.diagnostics import DiagnosticCode, SharingError, Unusable, is_reserved, name_problem
from golem_forge.usertools.manifest import (
    MANIFEST_FILE,
    ArgumentStyle,
    BooleanFlags,
    Expectation,
    OutputFormat,
    Parameter,
    TestCase,
    ToolManifest,
)
from golem_forge.usertools.manifest.schema import (
    ManifestFault,
    ManifestProblems,
    check_argument_style,
    check_json,
    check_variable,
    choice,
    integer,
    items,
    json_value,
    mapping,
    not_empty,
    one_line,
    parse_manifest,
    prose,
    read_calls,
    read_env,
    read_network,
    read_parameters,
    read_zones,
    seconds,
    string,
    value_of,
)

LONGEST_DESCRIPTION: Final = 1024
LONGEST_VERSION: Final = 64
LONGEST_USAGE: Final = 8192
LONGEST_LABEL: Final = 128

REQUIRED_KEYS: Final = ("name", "description", "version", "entrypoint")
_INDENT: Final = 2
_BLOCK_HEADER: Final = regex(r"([|>][-+0-9]*)(.*)", re.DOTALL)
"""The header of a block scalar, and a comment."""


class _Mode(StrEnum):
    LLM = "llm"
    MANUAL = "manual"
    BOTH = "both"


def read_manifest(data: bytes, *, folder: str) -> ToolManifest:
    """`folder`: the name of the folder it stands in, which must be the tool's."""
    try:
        return _manifest(parse_manifest(data), folder)
    except ManifestFault as fault:
        raise Unusable(fault.code, f"{MANIFEST_FILE}: {fault}", line=fault.line) from None


def manifest_from_values(given: Mapping[str, Any], folder: str) -> ToolManifest:
    """Builds a manifest from plain values. Raises ManifestFault."""
    return _manifest(YamlFile("", check_json(given), {}), folder)


def _manifest(file: YamlFile, folder: str) -> ToolManifest:
    problems = ManifestProblems(file)

    def name(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
        said = not_empty(value, path, problems, 4096)
        _check_name(said, folder, problems)
        return said

    given: dict[str, Any] = MappingSchema({"name": name, **_KEYS, "tests": _as_it_is}, REQUIRED_KEYS)(
        file.value, (), problems
    )
    style = given.get("arguments", ArgumentStyle.FLAGS)
    check_argument_style(given.get("parameters", ()), ("parameters",), style, problems)
    if "output_schema" in given and given.get("output") is not OutputFormat.JSON:
        line = file.line(("output_schema",))
        problems.add(("output_schema",), "is only used with `output: json`", line=line)
    if given.get("only_paths") and all(each.path is None for each in given.get("parameters", ())):
        line = file.line(("only_paths",))
        problems.add(("only_paths",), "needs a parameter with `path: read` or `path: write`", line=line)
    if "tests" in given:
        given["tests"] = _read_tests(given["tests"], ("tests",), problems, given.get("parameters", ()))
    return ToolManifest(**given)


def _as_it_is(value: Any, path: YamlPath, problems: ManifestProblems) -> Any:
    return value


def _check_name(name: str, folder: str, problems: ManifestProblems) -> None:
    if name != folder:
        problem = (
            f"'{escape_control_chars(name[:80])}' is not the folder's name "
            f"'{escape_control_chars(folder[:80])}'; rename one of the two"
        )
        problems.add(("name",), problem, code=DiagnosticCode.NAME_MISMATCH)
    if problem := name_problem(name):
        problems.add(("name",), problem, code=DiagnosticCode.NAME_INVALID)
    if is_reserved(name):
        problems.add(("name",), f"tool name '{name}' is reserved", code=DiagnosticCode.RESERVED_NAME)


def _entrypoint(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    name = not_empty(value, path, problems, 4096)
    inside = "/" not in name and "\\" not in name and name not in (".", "..")
    if not inside or escape_control_chars(name) != name or not name.isprintable() or len(name.encode()) > 255:
        problem = f"'{escape_control_chars(name[:80])}' must be the name of a file directly in the tool's folder"
        problems.add(path, problem, code=DiagnosticCode.ENTRYPOINT_INVALID)
    return name


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def _output_schema(value: Any, path: YamlPath, problems: ManifestProblems) -> dict[str, Any]:
    if not isinstance(value, dict):
        problems.expected(path, value, "a JSON Schema (a mapping)")
    schema: dict[str, Any] = json_value(value, path, problems)
    if str(schema.get("$schema", _DIALECT)).removesuffix("#") != _DIALECT:
        problems.add((*path, "$schema"), f"must be {_DIALECT}", line=problems.file.start(path))
    try:
        SchemaCheck(schema)
    except ToolDefinitionError as error:
        problems.add(path, escape_control_chars(str(error)))
    return schema


def _mode(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    return choice(value, path, problems, _Mode).value


_KEYS: Final[dict[str, Check]] = {
    "description": partial(not_empty, read=one_line, most=LONGEST_DESCRIPTION),
    "version": partial(not_empty, read=one_line, most=LONGEST_VERSION),
    "entrypoint": _entrypoint,
    "usage": partial(prose, most=LONGEST_USAGE),
    "parameters": read_parameters,
    "arguments": partial(choice, words=ArgumentStyle),
    "boolean_flags": partial(choice, words=BooleanFlags),
    "timeout": seconds,
    "env": read_env,
    "network": read_network,
    "zones": read_zones,
    "only_paths": flag,
    "calls": read_calls,
    "output": partial(choice, words=OutputFormat),
    "output_schema": _output_schema,
    "mode": _mode,
    "label": partial(one_line, most=LONGEST_LABEL),
    "category": partial(one_line, most=LONGEST_LABEL),
    "background": flag,
}
MANIFEST_KEYS: Final = ("name", *_KEYS, "tests")
"""In the order of the format. `tests` come last: their arguments are read by the types of the parameters."""


MOST_TESTS: Final = 64
MOST_FILES: Final = 64
MOST_TEXTS: Final = 64
LONGEST_TEXT: Final = 64 * 1024
LONGEST_NAME: Final = 128
LONGEST_PATTERN: Final = 1024

_RECORDING_FILE: Final = regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\.json")
_TEXT: Final = partial(string, most=LONGEST_TEXT)


def _read_tests(
    value: Any, path: YamlPath, problems: ManifestProblems, parameters: tuple[Parameter, ...]
) -> tuple[TestCase, ...]:
    by_name = {parameter.name: parameter for parameter in parameters}

    def arguments(value: Any, path: YamlPath, problems: ManifestProblems) -> dict[str, Any]:
        given = mapping(value, path, problems)
        return {name: _argument(item, (*path, name), problems, by_name.get(name)) for name, item in given.items()}

    case = MappingSchema({**_TEST_KEYS, "arguments": arguments}, keys_first=True)
    return tuple(TestCase(**case(item, place, problems)) for item, place in items(value, path, problems, MOST_TESTS))


def _argument(value: Any, path: YamlPath, problems: ManifestProblems, parameter: Parameter | None) -> Any:
    if parameter is not None:
        try:
            return value_of(parameter.type, parameter.items)(value, path, problems)
        except ManifestFault:
            pass
    return json_value(value, path, problems)


def _texts(value: Any, path: YamlPath, problems: ManifestProblems) -> tuple[str, ...]:
    """A list of texts; one text alone is a list of one."""
    if not isinstance(value, list):
        return (_TEXT(value, path, problems),)
    return tuple(_TEXT(item, place, problems) for item, place in items(value, path, problems, MOST_TEXTS))


def _test_env(value: Any, path: YamlPath, problems: ManifestProblems) -> Mapping[str, str]:
    found = _text_mapping(value, path, problems, MOST_TEXTS)
    for name, text in found.items():
        check_variable(name, path, problems)
        if "\0" in text:
            problems.add((*path, name), "must not contain a NUL character", line=problems.file.start(path))
    return found


def _text_mapping(value: Any, path: YamlPath, problems: ManifestProblems, most: int) -> dict[str, str]:
    """Name → text, both as written; the names are for the caller to judge."""
    found = mapping(value, path, problems, most)
    return {name: _TEXT(item, (*path, name), problems) for name, item in found.items()}


def _recording_file(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    name = string(value, path, problems, LONGEST_NAME)
    if not _RECORDING_FILE.fullmatch(name):
        problems.expected(path, value, "the name of a .json file in the tool's folder")
    return name


def _exit_code(value: Any, path: YamlPath, problems: ManifestProblems) -> int:
    code = integer(value, path, problems)
    if not 0 <= code <= 255:
        problems.expected(path, value, "from 0 to 255")
    return code


def _pattern(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    pattern = string(value, path, problems, LONGEST_PATTERN)
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        reason = escape_control_chars(str(error))[:100] if isinstance(error, re.error) else "too large"
        problems.add(path, f"is not a regular expression: {reason}")
    return pattern


def _files(value: Any, path: YamlPath, problems: ManifestProblems) -> Mapping[str, str]:
    found = _text_mapping(value, path, problems, MOST_FILES)
    folders = {"/".join(name.split("/")[:end]) for name in found for end in range(1, name.count("/") + 1)}
    for name in found:
        if problem := _file_name_problem(name):
            problems.add(path, f"'{escape_control_chars(name[:80])}' {problem}")
        if name in folders:
            problem = "is a file here and a directory of another file"
            problems.add((*path, name), problem, line=problems.file.start(path))
    return found


def _file_name_problem(name: str) -> str:
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "must be a path inside the test's workspace: relative, without '.' and '..'"
    if len(name.encode()) > 1024 or any(len(part.encode()) > 255 for part in parts):
        return "is too long for a file's name"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "must not contain control characters"
    return ""


_EXPECTATION: Final = MappingSchema(
    {
        "exit_code": _exit_code,
        "stdout": _TEXT,
        "stdout_contains": _texts,
        "stdout_matches": _pattern,
        "stderr_contains": _texts,
        "json": json_value,
        "files": _files,
    },
    keys_first=True,
)


def _expectation(value: Any, path: YamlPath, problems: ManifestProblems) -> Expectation:
    found: dict[str, Any] = _EXPECTATION(value, path, problems)
    return Expectation(**found, has_json="json" in found)


_TEST_KEYS: Final[dict[str, Check]] = {
    "name": partial(one_line, most=LONGEST_NAME),
    "arguments": _as_it_is,
    "env": _test_env,
    "files": _files,
    "timeout": seconds,
    "calls": _recording_file,
    "expect": _expectation,
}


def manifest_text(manifest: ToolManifest, *, stated: Collection[str] = ()) -> str:
    """`stated`: keys that are written even where the default would do, for whoever goes on writing."""
    given = _non_default_fields(manifest, stated)
    if "env" in given:
        given["env"] = [{"name": each.name, "required": True} if each.required else each.name for each in manifest.env]
    return yaml_text(given)


def _non_default_fields(value: Any, stated: Collection[str] = ()) -> dict[str, Any]:
    """Fields in declared order, as plain values, without those that say what is so anyway."""
    if isinstance(value, Parameter) and value.has_default:
        stated = ("default",)
    elif isinstance(value, Expectation) and value.has_json:
        stated = ("json",)
    said = changed_fields(value, without=("has_default", "has_json"), stated=stated)
    return {name: _plain_value(name, found) for name, found in said.items()}


def _plain_value(name: str, value: Any) -> Any:
    if name == "timeout":
        return int(value) if value.is_integer() else value
    if name == "expect":
        return _non_default_fields(value)
    if name in ("parameters", "tests"):
        return [_non_default_fields(each) for each in value]
    return value.value if isinstance(value, StrEnum) else value


_WIDTH: Final = 100
_LONGEST_PLAIN_KEY: Final = 1000
"""A key before a `:` has at most 1024 characters in YAML; a longer one is marked with `?`."""

_PLAIN: Final = regex(r"[^\W\d]|[\w(/.][^\n]*[^\s:]")
_PLAIN_IN_LIST: Final = regex(r"[A-Za-z][A-Za-z0-9_.-]*")
_PLAIN_KEY: Final = regex(r"[$A-Za-z][A-Za-z0-9_.-]*")
_NUMBER_LIKE: Final = regex(r"[0-9.][0-9_:.,xXoObBeEtTzZ +-]*")
_DOTTED_VERSION: Final = regex(r"[0-9]+\.[0-9]+\.[0-9]+(\.[0-9]+)*")
_AMBIGUOUS_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def yaml_text(value: Mapping[str, Any]) -> str:
    return "".join(f"{line}\n" for line in _mapping_lines(value, 0))


def _mapping_lines(value: Mapping[str, Any], indent: int) -> Iterator[str]:
    pad = " " * indent
    for key, item in value.items():
        name = key if _PLAIN_KEY.fullmatch(key) and not _is_ambiguous(key) else _quoted_scalar(key)
        head = f"{pad}{name}:"
        if len(name) > _LONGEST_PLAIN_KEY:
            yield f"{pad}? {name}"
            head = f"{pad}:"
        if isinstance(item, Mapping) and item:
            yield head
            yield from _mapping_lines(item, indent + 2)
        elif isinstance(item, (list, tuple)) and item and _needs_lines(item, len(head)):
            yield head
            yield from _list_lines(item, indent + 2)
        elif isinstance(item, str) and _fits_literal_block(item):
            yield f"{head} |" if item.endswith("\n") else f"{head} |-"
            yield from (f"{pad}  {line}" if line else "" for line in item.removesuffix("\n").split("\n"))
        else:
            yield f"{head} {_scalar_text(item) if isinstance(item, str) else _flow_text(item)}"


def _list_lines(value: list[Any] | tuple[Any, ...], indent: int) -> Iterator[str]:
    pad = " " * indent
    for item in value:
        if isinstance(item, Mapping) and item:
            lines = _mapping_lines(item, indent + 2)
            yield f"{pad}- {next(lines)[indent + 2 :]}"
            yield from lines
        else:
            yield f"{pad}- {_scalar_text(item) if isinstance(item, str) else _flow_text(item)}"


def _needs_lines(value: list[Any] | tuple[Any, ...], before: int) -> bool:
    return any(isinstance(item, Mapping) for item in value) or before + len(_flow_text(value)) > _WIDTH


def _fits_literal_block(text: str) -> bool:
    body = text.removesuffix("\n")
    lines = body.split("\n")
    return (
        len(lines) > 1
        and not text.endswith("\n\n")
        and not body.startswith((" ", "\n"))
        and all(line.isprintable() and (not line or not line.isspace()) for line in lines)
    )


def _scalar_text(text: str) -> str:
    """Returns a scalar that has a whole line to itself."""
    usable = _PLAIN.fullmatch(text) and text.isprintable() and ": " not in text and " #" not in text
    return text if usable and not _is_ambiguous(text) else _quoted_scalar(text)


def _is_ambiguous(text: str) -> bool:
    if is_no_text(text) or text.lower() in _AMBIGUOUS_WORDS:
        return True
    return bool(_NUMBER_LIKE.fullmatch(text)) and not _DOTTED_VERSION.fullmatch(text)


def _flow_text(value: Any) -> str:
    """Returns a value on one line, as in JSON."""
    if isinstance(value, str):
        return value if _PLAIN_IN_LIST.fullmatch(value) and not _is_ambiguous(value) else _quoted_scalar(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow_key_text(key)}: {_flow_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow_text, value)) + "]"
    return repr(value)


def _flow_key_text(key: str) -> str:
    name = _quoted_scalar(key)
    return f"? {name} " if len(name) > _LONGEST_PLAIN_KEY else name


def _quoted_scalar(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    escaped = escape_control_chars(escaped).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    return f'"{escaped}"'


def manifest_name(data: bytes) -> str:
    """The name a manifest gives itself, valid or not; empty if it has none."""
    try:
        found = parse_manifest(data).value.get("name")
    except ManifestFault:  # `read_manifest` says what is wrong
        return ""
    return str(found) if isinstance(found, str) else ""


def rename_manifest(data: bytes, name: str) -> bytes:
    """The present name may be one that no tool can have: that is what renaming is for."""
    try:
        before = parse_manifest(data)
        text = data.decode("utf-8")
        written = find_value(compose(text), "name") if before.value else None
        if written is None:
            raise SharingError(f"{MANIFEST_FILE}: has no `name`.")
        made = (text[: written.start_mark.index] + yaml_name(name) + text[written.end_mark.index :]).encode()
        after = parse_manifest(made)
    except ManifestFault as fault:
        raise Unusable(fault.code, f"{MANIFEST_FILE}: {fault}", line=fault.line) from None
    same = after.value == {**before.value, "name": name} and after.lines == before.lines
    if not same or not isinstance(before.value["name"], str):
        raise SharingError(f"{MANIFEST_FILE}: put `name` on a line of its own, so that it can be changed.")
    return made


def yaml_name(name: str) -> str:
    return f'"{name}"' if name.lower() in _AMBIGUOUS_WORDS else name


class _Splice(NamedTuple):
    start: int
    end: int
    text: str


def set_expected_stdout(text: str, printed: Mapping[int, str]) -> str:
    """Raises LookupError where a case is not found."""
    cases = find_value(compose(text), "tests")
    if cases is None:
        raise LookupError("tests")
    splices = [_stdout_splice(text, cases.value[index], said, _is_flow(cases)) for index, said in printed.items()]
    for one in sorted(splices, reverse=True):
        text = text[: one.start] + one.text + text[one.end :]
    return text


def have_expectations(text: str) -> tuple[bool, ...]:
    """Returns for each case whether its `expect` is not empty."""
    cases = find_value(compose(text), "tests")
    if cases is None or cases.id != "sequence":
        return ()
    expected = [find_value(case, "expect") if case.id == "mapping" else None for case in cases.value]
    return tuple(one is not None and one.id == "mapping" and bool(one.value) for one in expected)


def _stdout_splice(text: str, case: Any, said: str, in_flow: bool) -> _Splice:
    in_flow = in_flow or _is_flow(case)
    pair = find_pair(case, "expect")
    if pair is None:
        return _add_expect(text, case, said)
    key, expect = pair
    if expect.id != "mapping" or not expect.value:
        flow = f"{{stdout: {quote_yaml(said)}}}"
        if expect.start_mark.index == expect.end_mark.index:  # nothing stands there, and its place is the next key's
            after = text.index(":", key.end_mark.index) + 1
            return _Splice(after, after, f" {flow}")
        return _Splice(expect.start_mark.index, expect.end_mark.index, flow)
    found = find_pair(expect, "stdout")
    if found is None:
        raise LookupError("stdout")
    return _replace_value(text, *found, said, in_flow or _is_flow(expect))


def _replace_value(text: str, key: Any, value: Any, said: str, in_flow: bool) -> _Splice:
    start, end = value.start_mark.index, value.end_mark.index
    if start == end:
        after = text.index(":", key.end_mark.index) + 1
        return _Splice(after, after, f" {quote_yaml(said)}")
    rest_of_line = text[end:].split("\n", 1)[0]
    block = None if in_flow or "\r" in text else _literal_block(said, key.start_mark.column + _INDENT)
    if value.style in ("|", ">"):
        header, _, content = text[start:end].partition("\n")
        found = _BLOCK_HEADER.fullmatch(header)
        if found is None:
            raise LookupError("header")
        indicators, comment = found[1], found[2].rstrip()
        blank = "" if "+" in indicators else _trailing_blank_lines(content)
        if block is None:
            return _Splice(start, end, f"{quote_yaml(said)}{comment}\n{blank}")
        return _Splice(start, end, f"{block[0]}{comment}\n{block[1]}{blank}")
    if block is None or rest_of_line.strip() or said.count("\n") < 2:
        return _Splice(start, end, quote_yaml(said))
    line_end = end + len(rest_of_line) + 1
    return _Splice(start, min(line_end, len(text)), f"{block[0]}\n{block[1]}")


def _add_expect(text: str, case: Any, said: str) -> _Splice:
    if _is_flow(case):
        at = case.end_mark.index - 1
        comma = ", " if case.value and not text[:at].rstrip().endswith(",") else ""
        return _Splice(at, at, f"{comma}expect: {{stdout: {quote_yaml(said)}}}")
    column = case.value[0][0].start_mark.column
    at = _node_end(text, case)
    if at and text[at - 1] != "\n":
        newline = text.find("\n", at)
        at = len(text) if newline < 0 else newline + 1
    before = "" if text[:at].endswith("\n") else "\n"
    space, deeper = " " * column, column + _INDENT
    block = None if "\r" in text or said.count("\n") < 2 else _literal_block(said, deeper + _INDENT)
    shown = quote_yaml(said) + "\n" if block is None else f"{block[0]}\n{block[1]}"
    return _Splice(at, at, f"{before}{space}expect:\n{' ' * deeper}stdout: {shown}")


def _node_end(text: str, node: Any) -> int:
    """Returns where the last written part of a node ends; the node's own mark may be far behind comments."""
    while node.id != "scalar" and not _is_flow(node) and node.value:
        key, node = node.value[-1] if node.id == "mapping" else (None, node.value[-1])
        if node.start_mark.index == node.end_mark.index and key is not None:
            return text.index(":", key.end_mark.index) + 1
    return int(node.end_mark.index)


def quote_yaml(text: str) -> str:
    """Returns a double-quoted YAML scalar on one line."""
    return "".join(
        char if char.isprintable() else f"\\U{ord(char):08x}" for char in json.dumps(text, ensure_ascii=False)
    )


def _literal_block(text: str, column: int) -> tuple[str, str] | None:
    """A literal block: its header and its lines. None for a text that it cannot hold without tricks."""
    body = text.removesuffix("\n")
    lines = body.split("\n")
    plain = all(char.isprintable() or char in "\n\t" for char in text)
    if not plain or body[:1] in ("", " ", "\t", "\n") or body.endswith("\n"):
        return None
    if any(line != "" and (not line.strip() or line[0] == "\t") for line in lines):
        return None
    shown = "".join(f"{' ' * column}{line}\n" if line else "\n" for line in lines)
    return "|" if text.endswith("\n") else "|-", shown


def _trailing_blank_lines(content: str) -> str:
    found = re.search(r"(?:^|(?<=\n))(?:[ \t]*\n)*\Z", content)
    return found[0] if found else ""


def _is_flow(node: Any) -> bool:
    return bool(getattr(node, "flow_style", False))
