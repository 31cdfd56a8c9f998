"""A manifest that is written reads back equal, and is pleasant to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from tests.tables import table

from golem_forge.usertools.manifest import (
    ArgumentStyle,
    BooleanFlags,
    EnvVariable,
    Expectation,
    OutputFormat,
    Parameter,
    ParameterType,
    PathUse,
    TestCase,
    ToolManifest,
)
from golem_forge.usertools.manifest.tool_yaml import manifest_text, read_manifest, yaml_text

MANIFESTS = Path(__file__).parent / "manifests"

ODD = (
    "007", "1.10", "1e5", "true", "null", "~", "", " padded ", "yes", "2024-01-01", "0x10", "1_000",
    "12:30", "a: b", "a #b", "- a", "? a", "#a", "a:", "'q'", '"q"', "a\\b", "é ü 😀", "\u202e", "\x1b[2J",
    "\x7f", "\x85", "\u2028", "\ufeff", "\uffff", "a\nb", "a\nb\n", "a\n\nb\n", "a\nb\n\n", "\na", " a\nb",
    "a\n b\n", "a\n  \nb", "a \nb ", "\ta\nb", "a\n\tb", "a\r\nb", "%a\n%b", "---\n...", "[a", "{a", "*a",
    "&a", "!a", "|", ">", "@a", "`a`", "=", "<<", "\0", "a\tb", ".5", ".", "-", "n", "N", "\n", "\n\n",
)  # fmt: skip

texts = st.one_of(st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
lines = st.one_of(
    st.sampled_from([text for text in ODD if text.strip() and text.isprintable()]),
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=30),
).filter(lambda text: bool(text.strip()) and text.isprintable())
prose = lines | st.lists(lines, min_size=2, max_size=4).map("\n".join) | st.just("a\nb\n")
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)
numbers = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
values: Any = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
files = st.dictionaries(
    st.sampled_from(["a.txt", "in/b.txt", "é 1", "007", "x" * 200, "'q'", "[", "#", "no: 1"]), texts, max_size=3
)


@st.composite
def parameters(draw: Any, name: str) -> Parameter:
    kind = draw(st.sampled_from([kind for kind in ParameterType if kind is not ParameterType.OBJECT]))
    given: dict[str, Any] = {"name": name, "type": kind, "description": draw(prose)}
    items = (
        draw(st.sampled_from([ParameterType.STRING, ParameterType.INTEGER])) if kind is ParameterType.ARRAY else None
    )
    if items:
        given["items"] = items
    value = {
        ParameterType.STRING: texts,
        ParameterType.NUMBER: numbers,
        ParameterType.INTEGER: st.integers(-(10**30), 10**30),
        ParameterType.BOOLEAN: st.booleans(),
        ParameterType.ARRAY: st.lists(texts if items is ParameterType.STRING else st.integers(), max_size=4),
    }[kind]
    choice = draw(st.sampled_from(["nothing", "required", "default", "enum"]))
    if choice == "required":
        given["required"] = True
    elif choice == "default":
        given.update(has_default=True, default=draw(value))
    elif choice == "enum" and kind is ParameterType.STRING:
        given["enum"] = tuple(draw(st.lists(texts, min_size=1, max_size=4, unique=True)))
    if kind is ParameterType.STRING and choice != "default":
        given["path"] = draw(st.sampled_from([None, *PathUse]))
        given["pattern"] = draw(st.sampled_from(["", "^x", "\\d+#", "a: b"]))
    if kind is ParameterType.BOOLEAN:
        given["flag"] = draw(st.sampled_from([None, *BooleanFlags]))
    return Parameter(**given)


@st.composite
def cases(draw: Any, known: tuple[Parameter, ...]) -> TestCase:
    strings = {each.name: texts for each in known if each.type is ParameterType.STRING}
    integers = {each.name: st.integers() for each in known if each.type is ParameterType.INTEGER}
    has_json = draw(st.booleans())
    expect = Expectation(
        exit_code=draw(st.sampled_from([0, 3])),
        stdout=draw(st.none() | texts),
        stdout_contains=tuple(draw(st.lists(texts, max_size=3))),
        stdout_matches=draw(st.sampled_from([None, "^x.*$", "\\d: #"])),
        stderr_contains=tuple(draw(st.lists(texts, max_size=2))),
        has_json=has_json,
        json=draw(values) if has_json else None,
        files=draw(files),
    )
    return TestCase(
        name=draw(st.just("") | lines),
        arguments=draw(st.fixed_dictionaries({}, optional={**strings, **integers, "undeclared": values})),
        env=draw(
            st.dictionaries(st.sampled_from(["A", "B_1"]), texts.filter(lambda text: "\0" not in text), max_size=2)
        ),
        files=draw(files),
        timeout=draw(st.sampled_from([10.0, 2.0, 0.25])),
        expect=expect,
    )


@st.composite
def manifests(draw: Any) -> ToolManifest:
    declared = draw(st.lists(names, max_size=4, unique_by=str.lower))
    known = tuple(draw(parameters(name)) for name in declared)
    as_json = draw(st.booleans())
    return ToolManifest(
        name="tool",
        description=draw(lines),
        version=draw(lines),
        entrypoint=draw(st.sampled_from(["tool.py", "1.5", "a b", "-x", "#x", "é", "~"])),
        usage=draw(st.just("") | prose),
        parameters=known,
        arguments=draw(st.sampled_from([ArgumentStyle.FLAGS, ArgumentStyle.STDIN_JSON])),
        boolean_flags=draw(st.sampled_from(list(BooleanFlags))),
        timeout=draw(st.sampled_from([30.0, 0.1, 1.25, 3600.0])),
        env=tuple(
            draw(st.lists(st.builds(EnvVariable, name=st.sampled_from("AB"), required=st.booleans()), max_size=1))
        ),
        network=draw(st.sampled_from([False, True, ("example.test", "[2001:db8::1]:443", "example.test:80")])),
        zones=draw(
            st.none() | st.dictionaries(st.sampled_from(["workspace", "no", "n"]), st.sampled_from(["ro", "rw"]))
        ),
        calls=tuple(draw(st.lists(st.sampled_from(["read_file", "a__b", "on"]), unique=True))),
        output=OutputFormat.JSON if as_json else OutputFormat.TEXT,
        output_schema=draw(st.sampled_from([None, {}, {"type": "object", "$defs": {"a": {"enum": ODD[:20]}}}]))
        if as_json
        else None,
        mode=draw(st.sampled_from(["llm", "manual", "both"])),
        label=draw(st.just("") | lines),
        category=draw(st.just("") | lines),
        background=draw(st.booleans()),
        tests=tuple(draw(st.lists(cases(known), max_size=2))),
    )


@given(manifests())
def test_what_is_written_reads_back_equal(manifest: ToolManifest) -> None:
    if manifest.output_schema:
        manifest.output_schema["$defs"]["a"]["enum"] = list(ODD[:20])  # type: ignore[index]
    assert read_manifest(manifest_text(manifest).encode(), folder="tool") == manifest


@table("name", ["seed.yaml", "everything.yaml"])
def test_saving_and_loading_keeps_everything(name: str) -> None:
    data = (MANIFESTS / name).read_bytes()
    folder = "git-summarize" if name == "seed.yaml" else "everything"
    manifest = read_manifest(data, folder=folder)
    assert read_manifest(manifest_text(manifest).encode(), folder=folder) == manifest


def test_only_what_differs_is_written_in_a_way_people_like() -> None:
    manifest = ToolManifest(
        name="greet",
        description="Greets: politely",
        version="1.0.0",
        entrypoint="greet.py",
        usage="First line.\nSecond line.\n",
        parameters=(
            Parameter(name="who", type=ParameterType.STRING, description="Whom", has_default=True, default="007"),
            Parameter(name="style", type=ParameterType.STRING, description="How", enum=("plain", "loud", "on")),
        ),
        timeout=5.0,
        tests=(TestCase(name="greets", arguments={"who": "Ada"}, expect=Expectation(stdout="Hello Ada\n")),),
    )
    assert manifest_text(manifest) == (
        "name: greet\n"
        'description: "Greets: politely"\n'
        "version: 1.0.0\n"
        "entrypoint: greet.py\n"
        "usage: |\n"
        "  First line.\n"
        "  Second line.\n"
        "parameters:\n"
        "  - name: who\n"
        "    type: string\n"
        "    description: Whom\n"
        '    default: "007"\n'
        "  - name: style\n"
        "    type: string\n"
        "    description: How\n"
        '    enum: [plain, loud, "on"]\n'
        "timeout: 5\n"
        "tests:\n"
        "  - name: greets\n"
        "    arguments:\n"
        "      who: Ada\n"
        "    expect:\n"
        '      stdout: "Hello Ada\\n"\n'
    )


def test_keys_can_be_stated_although_the_default_would_do() -> None:
    manifest = ToolManifest(name="x", description="d", version="1.0.0", entrypoint="x.go")
    assert manifest_text(manifest, stated=("parameters", "boolean_flags")).splitlines()[4:] == [
        "parameters: []",
        "boolean_flags: equals",
    ]


@given(st.dictionaries(st.one_of(texts, st.just("\u202e" * 400)), values, max_size=3))
def test_other_yaml_readers_read_the_same(value: dict[str, Any]) -> None:
    assert YAML(typ="safe", pure=True).load(yaml_text(value)) == (value or None)


def test_a_file_hides_nothing_from_whoever_opens_it() -> None:
    text = yaml_text({"a": "\x1b[2J\u202e\u200b", "b": "x\n\u202ey"})
    assert text.replace("\n", "").isprintable()
