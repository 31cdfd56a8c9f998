"""Strict YAML: what is read, on which line, and what is refused."""

from __future__ import annotations

import os

import pytest

from golem_forge.config.yaml_file import MAX_BYTES, parse_yaml, read_yaml
from golem_forge.core.errors import ConfigError


def problem(text: bytes | str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "forge.yaml")
    return str(caught.value)


def test_values_and_lines() -> None:
    file = parse_yaml("# top\na: 1\nb:\n  - x\n  - {c: true,\n     d: 2.5}\n", "forge.yaml")
    assert file.value == {"a": 1, "b": ["x", {"c": True, "d": 2.5}]}
    assert [file.line(path) for path in [("a",), ("b",), ("b", 0), ("b", 1), ("b", 1, "d")]] == [2, 3, 4, 5, 6]
    assert file.at(("b", 1, "c", "deeper")) == "forge.yaml:5"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("TRUE", True),
        ("012", 12),
        ("0o14", 12),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("-5", -5),
        ("1e3", 1000.0),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ("!!str 5", "5"),
    ],
)
def test_scalars_are_yaml_1_2(text: str, value: object) -> None:
    found = parse_yaml(f"k: {text}", "f").value["k"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "forge.yaml:3: key 'a' is already on line 1"),
        ("a:\n  b: 1\n  b: 2\n", "forge.yaml:3: key 'b' is already on line 2"),
        ("- a\n", "forge.yaml:1: expected a mapping (`key: value` lines)"),
        ("just words", "forge.yaml:1: expected a mapping (`key: value` lines)"),
        ("a: 1\nb: !x 2\n", "forge.yaml:2: tag '!x' is not supported"),
        ("a: !!python/object:os.system {}\n", "forge.yaml:1: tag"),
        ("a: .inf\n", "forge.yaml:1: .inf is not a usable number"),
        ("? [1]\n: x\n", "forge.yaml:1: a key must be plain text"),
        ("a: 1\n\tb: 2\n", "forge.yaml:2: not valid YAML: "),
        ("a: *nothing\n", "forge.yaml:1: alias *nothing has no anchor before it"),
        ("a: 1\n---\nb: 2\n", "forge.yaml:2: a second document (`---`) is not supported"),
        ("%YAML 1.1\n---\na: yes\n", "forge.yaml:1: YAML directives (`%`) are not supported"),
        ("a: \x01\n", "forge.yaml:1: not valid YAML: control character"),
        (b"a: 1\nb: \xff\n", "forge.yaml:2: is not UTF-8"),
        ("a: " + "[" * 100 + "]" * 100, "too deeply nested"),
        ("[" * 500, "too deeply nested"),
    ],
)
def test_refused_with_file_and_line(text: bytes | str, expected: str) -> None:
    assert expected in problem(text)


def test_aliases_work_but_cannot_explode() -> None:
    assert parse_yaml("a: &x [1, 2]\nb: *x\n", "f").value == {"a": [1, 2], "b": [1, 2]}
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "too many values" in problem("\n".join(lines))
    assert "has no anchor before it" in problem("a: &a [*a]")


def test_an_empty_file_is_an_empty_mapping() -> None:
    assert parse_yaml(b"\xef\xbb\xbf# only a comment\n", "f").value == {}


def test_unreadable_files_are_errors_that_name_the_file_as_known(tmp_path) -> None:  # type: ignore[no-untyped-def]
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "big").write_bytes(b"#" * (MAX_BYTES + 1))
    for name, expected in [
        ("missing", "~/.forge/x.yaml: file not found"),
        (".", "~/.forge/x.yaml: is not a regular file"),
        ("fifo", "~/.forge/x.yaml: is not a regular file"),
        ("big", f"~/.forge/x.yaml: is larger than {MAX_BYTES} bytes"),
    ]:
        with pytest.raises(ConfigError) as caught:
            read_yaml(tmp_path / name, "~/.forge/x.yaml")
        assert str(caught.value) == expected
