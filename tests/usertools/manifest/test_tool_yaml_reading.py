"""Every rule of `tool.yaml`: what is read, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable
from golem_forge.usertools.manifest import (
    ArgumentStyle,
    BooleanFlags,
    EnvVariable,
    OutputFormat,
    Parameter,
    ParameterType,
    PathUse,
    ToolManifest,
)
from golem_forge.usertools.manifest.tool_yaml import read_manifest

MANIFESTS = Path(__file__).parent / "manifests"
SMALL = "name: x\ndescription: d\nversion: 1.0.0\nentrypoint: x.py\n"


def read(text: str, folder: str = "x") -> ToolManifest:
    return read_manifest(text.encode(), folder=folder)


def refusal(text: str | bytes, folder: str = "x") -> Unusable:
    with pytest.raises(Unusable) as caught:
        read_manifest(text if isinstance(text, bytes) else text.encode(), folder=folder)
    assert caught.value.message.startswith("tool.yaml: ")
    assert caught.value.line is not None
    return caught.value


def message(more: str) -> str:
    """What is said of a manifest that is fine but for these lines."""
    error = refusal(SMALL + more)
    assert error.diagnostic_code is DiagnosticCode.MANIFEST_INVALID
    return error.message.removeprefix("tool.yaml: ")


def parameter(more: str, top: str = "") -> Parameter:
    return read(f"{SMALL}{top}parameters:\n  - {{name: p, description: d, {more}}}\n").parameters[0]


def parameter_message(more: str) -> str:
    return message(f"parameters:\n  - {{name: p, description: d, {more}}}\n").removeprefix("parameters[0].")


# What loads


@table("entrypoint", ["git-summarize.go", "git-summarize", "git-summarize.sh"])
def test_the_original_format_loads_unchanged(entrypoint: str) -> None:
    text = (MANIFESTS / "seed.yaml").read_text().replace("entrypoint: git-summarize.go ", f"entrypoint: {entrypoint} ")
    made = read(text, "git-summarize")
    assert made.entrypoint == entrypoint
    assert made.usage == (
        "Pass --since and --until as CLI args for simple usage.\n"
        "For complex filtering, create a config.json and pass --config=/path/to/config.json\n"
    )
    assert [each.name for each in made.parameters] == ["since", "until", "config"]
    assert all(each.type is ParameterType.STRING and not each.required for each in made.parameters)


def test_the_smallest_manifest_has_every_default() -> None:
    made = read(SMALL)
    assert made == ToolManifest(name="x", description="d", version="1.0.0", entrypoint="x.py")
    assert (made.arguments, made.boolean_flags, made.timeout) == (ArgumentStyle.FLAGS, BooleanFlags.EQUALS, 30.0)
    assert (made.network, made.zones, made.output, made.mode) == (False, None, OutputFormat.TEXT, "both")


def test_every_key_is_read() -> None:
    made = read_manifest((MANIFESTS / "everything.yaml").read_bytes(), folder="everything")
    assert made.usage == "Folded text.\n"
    by_name = {each.name: each for each in made.parameters}
    assert (by_name["text"].min, by_name["text"].max) == (1, 10)
    assert by_name["code"].pattern == "[0-9]+"
    assert (by_name["ratio"].min, by_name["ratio"].max, by_name["ratio"].default) == (-0.5, 1.5, 0.5)
    assert by_name["count"].default == 16
    assert by_name["loud"].flag is BooleanFlags.PAIR
    assert by_name["loud"].default is True
    assert by_name["tags"].items is ParameterType.INTEGER
    assert by_name["tags"].default == [1, 2]
    assert by_name["deep"].type is ParameterType.OBJECT
    assert by_name["where"].path is PathUse.WRITE
    assert by_name["where"].required
    assert made.arguments is ArgumentStyle.STDIN_JSON
    assert made.timeout == 0.5
    assert made.env == (EnvVariable(name="API_TOKEN"), EnvVariable(name="OTHER", required=True))
    assert made.network == ("example.test", "example.test:8080", "[2001:db8::1]:443", "[2001:db8::2]")
    assert made.zones == {"workspace": "rw", "docs": "ro"}
    assert made.calls == ("read_file", "server__tool")
    assert made.output is OutputFormat.JSON
    assert made.output_schema == {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert (made.mode, made.label, made.background) == ("manual", "Everything", True)
    case, empty = made.tests
    assert (case.timeout, case.files) == (2.0, {"in/a.txt": "x\n"})
    assert (case.expect.exit_code, case.expect.stdout_matches) == (3, "^x.*$")
    assert case.expect.stderr_contains == ("oops",)
    assert case.expect.json == {"a": [1, 2.5, None, "3"]}
    assert empty.expect.exit_code == 0
    assert empty.timeout == 10.0


def test_scalars_of_string_keys_are_read_as_written() -> None:
    made = read_manifest((MANIFESTS / "everything.yaml").read_bytes(), folder="everything")
    assert (made.version, made.description, made.category) == ("1.10", "2024-01-01", "12")
    text = made.parameters[0]
    assert text.default == "007"
    assert text.enum == ("007", "1e5", "true")
    case = made.tests[0]
    assert case.arguments == {"text": "007", "count": 5, "tags": [3], "other": 1.5, "deep": {"a": 1}}
    assert case.env == {"LEVEL": "010"}
    assert (case.expect.stdout, case.expect.stdout_contains) == ("1.0", ("a", "2"))
    assert case.expect.files == {"out.txt": "12"}


def test_a_name_that_looks_like_a_number_or_null_is_text() -> None:
    assert read("name: 'null'\ndescription: null\nversion: ~\nentrypoint: 1.5\n", "null").description == "null"


def test_an_argument_that_does_not_fit_is_kept_for_the_run_to_refuse() -> None:
    made = read(
        f"{SMALL}tests:\n  - arguments: {{n: abc, s: [1]}}\nparameters:\n"
        "  - {name: n, type: integer, description: d}\n  - {name: s, type: string, description: d}\n"
    )
    assert made.tests[0].arguments == {"n": "abc", "s": [1]}


# YAML itself


@table(
    ("text", "line", "said"),
    [
        ("name: x\ndescription: [a\n", 3, "not valid YAML"),
        ("name: x\nusage: 'a\n", 3, "not valid YAML"),
        ("name: x\n\tdescription: d\n", 2, "not valid YAML"),
        ("name: x\ndescription: a: b\n", 2, "not valid YAML"),
        ("name: x\ndescription: d\nname: x\n", 3, "name: is already on line 1"),
        ("name: x\nusage: &u text\n", 2, "usage: anchors (`&`) and aliases (`*`) are not supported"),
        ("name: x\nlabel: *u\n", 2, "label: anchors"),
        ("name: x\n<<: *u\n", 2, "<<: anchors"),
        ("name: x\nusage: !!binary aGk=\n", 2, "tag"),
        ("name: x\nzones: !set {a: ro}\n", 2, "tag"),
        ("name: x\n? [a]\n: b\n", 2, "a key must be plain text"),
        ("%YAML 1.1\n---\nname: x\n", 1, "YAML directives"),
        ("name: x\n---\nname: y\n", 2, "a second document"),
        (b"name: x\nusage: \xff\n", 2, "is not UTF-8"),
        (b"name: x\nusage: \x07\n", 2, "control character"),
        ('name: x\nusage: "\\UFFFFFFFF"\n', 1, "not valid YAML"),
    ],
)
def test_what_is_not_yaml_is_told_with_its_line(text: str | bytes, line: int, said: str) -> None:
    error = refusal(text)
    assert error.diagnostic_code is DiagnosticCode.YAML_INVALID
    assert said in error.message
    assert error.line == line


def test_a_size_that_cannot_be_meant_is_refused() -> None:
    assert refusal("#" * (64 * 1024 + 1)).message == "tool.yaml: is larger than 64 KiB"
    assert read(SMALL + "#" * (64 * 1024 - len(SMALL))).name == "x"
    assert refusal(f"{SMALL}zones: {'[' * 100}").message.endswith("is too deeply nested")
    assert refusal(f"{SMALL}calls: [{'a,' * 10_001}]").message == "tool.yaml: has more than 10,000 values"


@table("text", ["- a\n", "just text\n", "5\n"])
def test_a_manifest_is_a_mapping(text: str) -> None:
    assert refusal(text).message == "tool.yaml: must be a mapping (`key: value` lines)"


def test_half_a_surrogate_pair_is_refused_where_it_stands() -> None:
    error = refusal('name: x\ndescription: "\\ud800"\n')
    assert error.message == "tool.yaml: description: contains half a surrogate pair, which is not a character"


# The four that must be there, and names


@table("key", ["name", "description", "version", "entrypoint"])
def test_a_missing_key_is_named(key: str) -> None:
    kept = "".join(line for line in SMALL.splitlines(keepends=True) if not line.startswith(key))
    error = refusal(kept)
    assert error.diagnostic_code is DiagnosticCode.MANIFEST_INVALID
    assert error.message == f"tool.yaml: {key}: missing required key"
    empty = refusal(kept + f"{key}:\n")
    assert (
        empty.message == f"tool.yaml: {key}: must not be empty" or empty.diagnostic_code is DiagnosticCode.NAME_MISMATCH
    )


def test_an_empty_file_lacks_its_name() -> None:
    assert refusal("").message == refusal("# nothing\n").message == "tool.yaml: name: missing required key"


def test_an_unknown_key_is_an_error_with_the_nearest_one() -> None:
    error = refusal(f"{SMALL}timout: 5\n")
    assert error.message == "tool.yaml: unknown key 'timout' (did you mean 'timeout'?)"
    assert (error.diagnostic_code, error.line) == (DiagnosticCode.MANIFEST_INVALID, 5)
    assert "(known: name, description," in message("qqqqqq: 5\n")
    assert message("needs_approval: false\n").startswith("unknown key 'needs_approval'")
    assert message('"a\\nforge: all is well": 1\n').startswith("unknown key 'a\\nforge: all is well'"), "on one line"
    assert parameter_message("type: string, requird: true") == (
        "parameters[0]: unknown key 'requird' (did you mean 'required'?)"
    )
    assert "\x1b" not in message('"a\\e[2J": 1\n')


def test_the_first_problem_of_the_file_is_told() -> None:
    assert message("timeout: 0\nmode: x\n").startswith("timeout:")
    assert message("mode: x\ntimeout: 0\n").startswith("mode:")


@table(
    ("name", "folder", "code"),
    [
        ("foo", "bar", DiagnosticCode.NAME_MISMATCH),
        ("Foo", "foo", DiagnosticCode.NAME_MISMATCH),
        ("a b", "a b", DiagnosticCode.NAME_INVALID),
        ("a__b", "a__b", DiagnosticCode.NAME_INVALID),
        ("exec_command", "exec_command", DiagnosticCode.RESERVED_NAME),
        ("Exec_Command", "Exec_Command", DiagnosticCode.RESERVED_NAME),
    ],
)
def test_names_have_codes_of_their_own(name: str, folder: str, code: DiagnosticCode) -> None:
    error = refusal(SMALL.replace("name: x", f"name: {name}"), folder)
    assert error.diagnostic_code is code
    assert error.message.startswith("tool.yaml: name: ")


@table("entrypoint", ["../evil", "a/b", ".", "..", "/bin/ls", "a\\b", '"a\\0b"', '"a\\e[2J"', "x" * 256])
def test_an_entrypoint_that_is_no_file_of_the_folder(entrypoint: str) -> None:
    error = refusal(SMALL.replace("x.py", entrypoint))
    assert error.diagnostic_code is DiagnosticCode.ENTRYPOINT_INVALID
    assert error.line == 4
    assert "\x1b" not in error.message


# Each key


@table(
    ("more", "said"),
    [
        ("label: [a]\n", "label: must be a string"),
        ("label: 'a\n\n  b'\n", "label: must be one line"),
        (f"category: {'x' * 129}\n", "category: must have at most 128 characters, not 129"),
        (f"usage: {'x' * 8193}\n", "usage: must have at most 8192 characters, not 8193"),
        ('usage: "a\\e[2J"\n', "usage: must not contain control or hidden characters other than newline and tab"),
        ('usage: "a\\u202eb"\n', "usage: must not contain control or hidden characters other than newline and tab"),
        ("parameters: {}\n", "parameters: must be a list ([] for an empty one)"),
        ("parameters:\n", "parameters: must be a list ([] for an empty one)"),
        ("arguments: positional\n", "arguments: must be one of flags, stdin-json, env"),
        ("boolean_flags: both\n", "boolean_flags: must be one of equals, switch, pair"),
        ("timeout: 0\n", "timeout: must be a number of seconds from 0.1 to 3600"),
        ("timeout: 3600.5\n", "timeout: must be a number of seconds from 0.1 to 3600"),
        ("timeout: '5'\n", "timeout: must be a number"),
        ("timeout: .nan\n", "timeout: is not a finite number"),
        ("timeout: 1e999\n", "timeout: is not a finite number"),
        ("timeout: true\n", "timeout: must be a number"),
        ("env: [PATH]\n", "env[0]: 'PATH' cannot be given to a child"),
        ("env: [LD_PRELOAD]\n", "env[0]: 'LD_PRELOAD' cannot be given"),
        ("env: [FORGE_HOME]\n", "env[0]: 'FORGE_HOME' cannot be given"),
        ("env: [{name: BASH_ENV}]\n", "env[0].name: 'BASH_ENV' cannot be given"),
        ("env: [a b]\n", "env[0]: 'a b' is not the name of a variable"),
        ("env: [{required: true}]\n", "env[0].name: missing required key"),
        ("env: [{name: A, required: maybe}]\n", "env[0].required: must be true or false"),
        ("env: [A, A]\n", "env[1]: A appears twice"),
        ("network: example.com\n", "network: must be true, false or a list of hosts"),
        ("network: [https://example.com]\n", "network[0]: 'https://example.com': write the host alone"),
        ("network: ['*.example.com']\n", "network[0]: '*.example.com': names one host"),
        ("network: ['group:perl']\n", "network[0]: 'group:perl': there is no such group; groups are python"),
        ("network: [example.com:0]\n", "network[0]: 'example.com:0': a port is a number from 1 to 65535"),
        ("network: [example.com:65536]\n", "network[0]: 'example.com:65536': a port"),
        ("network: ['example.com:']\n", "network[0]: 'example.com:': has no port"),
        ("network: ['[::1']\n", "network[0]: '[::1'"),
        ("network: [a b]\n", "network[0]: 'a b': is not a host name"),
        ("network: [0x7f.1]\n", "network[0]: '0x7f.1': is not a usable address"),
        ("zones: [a]\n", "zones: must be a mapping"),
        ("zones: {workspace: w}\n", "zones.workspace: must be one of ro, rw"),
        ("zones: {user_tools: rw}\n", "zones.user_tools: no tool reaches the zone of user tools"),
        ("zones: {../x: rw}\n", "zones: '../x' is not the name of a zone"),
        ("calls: [a b]\n", "calls[0]: 'a b' is not the name of a tool"),
        ("calls: [a, a]\n", "calls[1]: 'a' appears twice"),
        ("output: xml\n", "output: must be one of text, json"),
        ("output_schema: {}\n", "output_schema: is only used with `output: json`"),
        ("output: json\noutput_schema: 5\n", "output_schema: must be a JSON Schema (a mapping)"),
        ("output: json\noutput_schema: {type: nothing}\n", "output_schema: not a valid schema at $.type"),
        ("output: json\noutput_schema: {$ref: 'http://e.test/s'}\n", "output_schema: not a valid schema"),
        (
            "output: json\noutput_schema: {$schema: 'http://json-schema.org/draft-07/schema#'}\n",
            "output_schema.$schema:",
        ),
        ("mode: auto\n", "mode: must be one of llm, manual, both"),
        ("background: 1\n", "background: must be true or false"),
        ("background: 'true'\n", "background: must be true or false"),
    ],
)
def test_a_broken_rule_is_told_by_its_key(more: str, said: str) -> None:
    assert message(more).startswith(said)


@table("hidden", ["\\e[31m", "\\u202e", "\\u200b", "\\ufeff", "\\t", "\\U000e0041", "\\x85"])
def test_a_description_hides_nothing(hidden: str) -> None:
    error = refusal(SMALL.replace("description: d", f'description: "a{hidden}b"'))
    assert error.message == "tool.yaml: description: must not contain control, bidi or zero-width characters"
    assert error.line == 2


def test_descriptions_have_their_bounds() -> None:
    assert len(read(SMALL.replace("description: d", f"description: {'é' * 1024}")).description) == 1024
    assert "at most 1024 characters" in refusal(SMALL.replace("description: d", f"description: {'x' * 1025}")).message
    assert "at most 64 characters" in refusal(SMALL.replace("1.0.0", "1" * 65)).message
    assert refusal(SMALL.replace("description: d", 'description: "a\\nb"')).message.endswith("must be one line")


def test_usage_may_be_written_in_any_script() -> None:
    text = "می\u200cخواهم 👩\u200d🔧 tab\there"
    assert read(f"{SMALL}usage: '{text}'\n".replace("\t", "\t")).usage == text


def test_hosts_are_kept_in_one_spelling() -> None:
    assert read(f"{SMALL}network: [EXAMPLE.com., bücher.example:80, example.com]\n").network == (
        "example.com",
        "xn--bcher-kva.example:80",
    )
    assert read(f"{SMALL}network: true\n").network is True
    assert read(f"{SMALL}network: []\n").network is False


def test_no_zones_is_not_the_same_as_not_saying() -> None:
    assert read(f"{SMALL}zones: {{}}\n").zones == {}


# Parameters


@table(
    ("more", "said"),
    [
        ("type: invalid", "type: must be one of string, number, integer, boolean, array, object"),
        ("type: string, required: 'true'", "required: must be true or false"),
        ("type: integer, default: abc", "default: must be an integer"),
        ("type: integer, default: 1.5", "default: must be an integer"),
        ("type: number, default: '1'", "default: must be a number"),
        ("type: number, default: .inf", "default: is not a finite number"),
        ("type: boolean, default: yes", "default: must be true or false"),
        ("type: string, default: [a]", "default: must be a string"),
        ("type: array, default: a", "default: must be a list"),
        ("type: array, items: integer, default: [1, x]", "default[1]: must be an integer"),
        ("type: string, default: a, required: true", "default: cannot be used together with `required: true`"),
        ("type: string, default: c, enum: [a, b]", "default: must be one of a, b"),
        ("type: string, default: abc, max: 2", "default: must have at most 2 characters"),
        ("type: integer, default: 1, min: 2", "default: must be at least 2"),
        ("type: array, default: [a, b], max: 1", "default: must have at most 1 item"),
        ("type: string, default: abc, pattern: '^x'", "default: must match the pattern ^x"),
        ("type: integer, enum: [1, b]", "enum[1]: must be an integer"),
        ("type: integer, enum: [1, 1]", "enum[1]: appears twice"),
        ("type: string, enum: []", "enum: must not be empty"),
        ("type: array, enum: [a]", "enum[0]: must be a list"),
        ("type: string, min: -1", "min: must be a count: 0 or more"),
        ("type: string, max: 1.5", "max: must be an integer"),
        ("type: boolean, min: 1", "min: is only for parameters of type string, number, integer, array, not boolean"),
        ("type: number, min: 2, max: 1", "max: must not be below min"),
        ("type: string, pattern: '('", "pattern: is not a regular expression of JSON Schema"),
        ("type: string, pattern: ''", "pattern: must not be empty"),
        ("type: integer, pattern: a", "pattern: is only for parameters of type string, not integer"),
        ("type: array, items: object", "items: must be one of string, number, integer, boolean"),
        ("type: array, items: array", "items: must be one of string, number, integer, boolean"),
        ("type: string, items: string", "items: is only for parameters of type array, not string"),
        ("type: string, flag: pair", "flag: is only for parameters of type boolean, not string"),
        ("type: boolean, flag: maybe", "flag: must be one of equals, switch, pair"),
        ("type: integer, path: read", "path: is only for parameters of type string, not integer"),
        ("type: string, path: both", "path: must be one of read, write"),
        ("type: object", "type: object needs `arguments: stdin-json`"),
    ],
)
def test_a_parameter_that_cannot_be_meant(more: str, said: str) -> None:
    assert parameter_message(more).startswith(said)


def test_what_a_parameter_must_have_is_named_with_its_place() -> None:
    first = "parameters:\n  - {name: a, type: string, description: d}\n  - "
    assert message(first + "{type: string, description: d}\n") == "parameters[1].name: missing required key"
    assert message(first + "{name: b, type: string}\n") == "parameters[1].description: missing required key"
    assert message(first + "{name: b, description: d}\n") == "parameters[1].type: missing required key"
    assert (
        message(first + "{name: b, type: string, description: ' '}\n") == "parameters[1].description: must not be empty"
    )
    assert message(first + "b\n").startswith("parameters[1]: must be a mapping")
    assert refusal(SMALL + first + "{name: 1b, type: string, description: d}\n").line == 7


@table("name", ["1a", "_a", "a b", "a.b", "''", "a" * 65, "é"])
def test_names_of_parameters(name: str) -> None:
    assert message(f"parameters:\n  - {{name: {name}, type: string, description: d}}\n") == (
        "parameters[0].name: must be a letter, then up to 63 letters, digits, '-' and '_'"
    )


def test_names_of_parameters_differ_by_more_than_case() -> None:
    pair = (
        "parameters:\n  - {{name: {}, type: string, description: d}}\n  - {{name: {}, type: string, description: d}}\n"
    )
    assert message(pair.format("Tag", "tag")).startswith("parameters[1].name: 'tag' and 'Tag' count as one name")
    assert message(f"arguments: env\n{pair.format('a-b', 'a_b')}") == (
        "parameters[1].name: 'a_b' and 'a-b' would both be the variable FORGE_ARG_A_B"
    )
    assert len(read(SMALL + pair.format("a-b", "a_b")).parameters) == 2


def test_there_are_at_most_64_parameters() -> None:
    lines = "".join(f"  - {{name: p{index}, type: string, description: d}}\n" for index in range(65))
    assert message(f"parameters:\n{lines}") == "parameters: must have at most 64 entries, not 65"


def test_values_that_are_allowed_by_the_other_keys() -> None:
    assert parameter("type: string, default: 1e5, pattern: e").default == "1e5"
    assert parameter("type: number, default: 3, min: 3, max: 3").default == 3
    assert (
        parameter("type: integer, min: 0.5, default: 123456789012345678901234567890").default
        == 123456789012345678901234567890
    )
    assert parameter("type: array, items: number, default: [], min: 0").default == []
    assert parameter("type: boolean, enum: [true]").enum == (True,)
    assert parameter("type: object, default: {a: [1]}", "arguments: stdin-json\n").default == {"a": [1]}
    assert parameter("type: string, default: ''").has_default


# Tests


@table(
    ("more", "said"),
    [
        ("{argments: {}}", "tests[0]: unknown key 'argments' (did you mean 'arguments'?)"),
        ("{expect: {stdou: a}}", "tests[0].expect: unknown key 'stdou' (did you mean 'stdout'?)"),
        ("{arguments: [a]}", "tests[0].arguments: must be a mapping"),
        ("{timeout: 0}", "tests[0].timeout: must be a number of seconds from 0.1 to 3600"),
        ("{env: {PATH: /}}", "tests[0].env: 'PATH' cannot be given"),
        ('{env: {A: "a\\0b"}}', "tests[0].env.A: must not contain a NUL character"),
        ("{env: [A]}", "tests[0].env: must be a mapping"),
        ("{files: {/etc/x: a}}", "tests[0].files: '/etc/x' must be a path inside the test's workspace"),
        ("{files: {../x: a}}", "tests[0].files: '../x' must be"),
        ("{files: {a/../x: a}}", "tests[0].files: 'a/../x' must be"),
        ("{files: {a//x: a}}", "tests[0].files: 'a//x' must be"),
        ('{files: {"a\\0": a}}', "tests[0].files: 'a\\x00' must not contain control characters"),
        ("{files: {a: x, a/b: x}}", "tests[0].files.a: is a file here and a directory of another file"),
        (f"{{files: {{{'x' * 256}: a}}}}", "tests[0].files: 'xxx"),
        ("{files: {a: [b]}}", "tests[0].files.a: must be a string"),
        ("{expect: {exit_code: 256}}", "tests[0].expect.exit_code: must be from 0 to 255"),
        ("{expect: {exit_code: '0'}}", "tests[0].expect.exit_code: must be an integer"),
        ("{expect: {stdout_matches: '('}}", "tests[0].expect.stdout_matches: is not a regular expression"),
        ("{expect: {files: {../x: a}}}", "tests[0].expect.files: '../x' must be"),
        ("{expect: {json: .nan}}", "tests[0].expect.json: is not a finite number"),
    ],
)
def test_a_test_that_cannot_be_meant(more: str, said: str) -> None:
    assert message(f"tests: [{more}]\n").startswith(said)


def test_a_pattern_nobody_could_compile_is_refused_not_a_crash() -> None:
    for pattern in ("(" * 5000 + ")" * 5000, "a{99999999999999999999}"):
        with pytest.raises(Unusable, match="stdout_matches"):
            read(f"{SMALL}tests: [{{expect: {{stdout_matches: '{pattern}'}}}}]\n")


def test_an_ordinary_manifest_needs_no_whole_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand are read at a start, and the library takes many times as long."""
    monkeypatch.setattr("golem_forge.config.yaml_file.read_full_document", None)
    manifest = read_manifest((MANIFESTS / "seed.yaml").read_bytes(), folder="git-summarize")
    assert manifest.name == "git-summarize"
