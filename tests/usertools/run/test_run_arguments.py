"""Values reach the process byte for byte: the rule for each kind of value, and what a real process got."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest
from tests.tables import table

from golem_forge.tools.validation import InputInvalid
from golem_forge.usertools.manifest import ArgumentStyle, BooleanFlags, ParameterType, PathUse
from golem_forge.usertools.run import LONGEST_ARGUMENT, process_input

from .run_ground import manifest, parameter

EXACT = [
    "007",
    "1.10",
    "1e5",
    "true",
    "NaN",
    " padded ",
    "",
    "a b;$(id)\n\"'",
    "é\U0001f600",
    "--x=y",
    "-rf",
    "=",
    "\t",
]


def flags(parameters, values, **keys):
    return process_input(manifest(parameters=tuple(parameters), **keys), values, paths={}).argv


def arrived(argv):
    """What a real program finds in its argv."""
    told = "import os, sys, json; print(json.dumps([os.fsencode(each).hex() for each in sys.argv[1:]]))"
    out = subprocess.run([sys.executable, "-c", told, *argv], capture_output=True, check=True).stdout
    return [bytes.fromhex(each) for each in json.loads(out)]


def test_nothing_given_is_nothing_passed():
    given = process_input(manifest(parameters=(parameter("a"), parameter("b", "boolean"))), {}, paths={})
    assert (given.argv, given.env, given.stdin) == ((), {}, None)


def test_text_arrives_exactly_and_is_always_one_element():
    argv = [flag for text in EXACT for flag in flags([parameter("x")], {"x": text})]
    assert arrived(argv) == [f"--x={text}".encode() for text in EXACT]


@table(
    ("value", "text"),
    [
        (20, "20"),
        (-7, "-7"),
        (3.14, "3.14"),
        (3.0, "3"),
        (100.0, "100"),
        (1e22, "10000000000000000000000"),
        (1.5e-7, "0.00000015"),
        (-0.0, "-0"),
        (0.1 + 0.2, "0.30000000000000004"),
        (5e-324, "0." + "0" * 323 + "5"),
    ],
)
def test_numbers_are_the_shortest_decimal_without_an_exponent(value, text):
    assert flags([parameter("n", "number")], {"n": value}) == (f"--n={text}",)
    if isinstance(value, float):
        assert math.copysign(1, float(text)) == math.copysign(1, value) and float(text) == value


def test_an_integer_has_as_many_digits_as_it_has():
    assert flags([parameter("n", "integer")], {"n": 10**5000}) == ("--n=1" + "0" * 5000,)


@table("value", [math.nan, math.inf, -math.inf])
@table("style", ArgumentStyle)
def test_what_is_no_number_is_refused_everywhere(value, style):
    with pytest.raises(InputInvalid, match=r"^n: must be a finite number"):
        process_input(manifest(parameters=(parameter("n", "number"),), arguments=style), {"n": value}, paths={})


@table(
    ("style", "true", "false"),
    [
        (BooleanFlags.EQUALS, ("--v=true",), ("--v=false",)),
        (BooleanFlags.SWITCH, ("--v",), ()),
        (BooleanFlags.PAIR, ("--v",), ("--no-v",)),
    ],
)
def test_booleans_and_the_parameters_own_word(style, true, false):
    plain = parameter("v", "boolean")
    own = parameter("v", "boolean", flag=style)
    for value, expected in ((True, true), (False, false)):
        assert flags([plain], {"v": value}, boolean_flags=style) == expected
        assert flags([own], {"v": value}, boolean_flags=BooleanFlags.EQUALS) == expected


def test_the_order_is_the_declared_one_and_defaults_are_passed():
    declared = [parameter("a"), parameter("b", has_default=True, default="mid"), parameter("c", "boolean")]
    assert flags(declared, {"c": True, "a": "1"}) == ("--a=1", "--b=mid", "--c=true")


def test_arrays_are_one_flag_per_item():
    tags = parameter("tag", "array")
    assert flags([tags], {"tag": ["x", "y z"]}) == ("--tag=x", "--tag=y z")
    assert flags([tags], {"tag": []}) == ()
    numbers = parameter("n", "array", items=ParameterType.NUMBER)
    assert flags([numbers], {"n": [1, 2.50, True]}) == ("--n=1", "--n=2.5", "--n=true")


def test_variables():
    declared = (parameter("max-size", "integer"), parameter("b", "boolean"), parameter("t", "array"), parameter("s"))
    values = {"max-size": 3, "b": False, "t": ["é", 'q"'], "s": ""}
    given = process_input(manifest(parameters=declared, arguments=ArgumentStyle.ENV), values, paths={})
    assert (given.argv, given.stdin) == ((), None)
    assert given.env == {
        "FORGE_ARG_MAX_SIZE": "3",
        "FORGE_ARG_B": "false",
        "FORGE_ARG_T": '["é","q\\""]',
        "FORGE_ARG_S": "",
    }


def test_standard_input_is_one_object_in_declared_order():
    declared = manifest(parameters=(parameter("a"), parameter("b", "integer")), arguments=ArgumentStyle.STDIN_JSON)
    given = process_input(declared, {"b": 1, "a": "é"}, paths={})
    assert given.stdin == '{"a":"é","b":1}\n'.encode()
    assert process_input(declared, {}, paths={}).stdin == b"{}\n"


def test_standard_input_holds_numbers_exactly_and_any_text():
    declared = manifest(
        parameters=(parameter("o", "object"), parameter("i", "integer"), parameter("n", "number")),
        arguments=ArgumentStyle.STDIN_JSON,
    )
    value = {"big": 10**4400, "f": 0.1, "s": "\0\n\u2028", "l": [None, True, {"k": []}]}
    given = process_input(declared, {"o": value, "i": 3.0, "n": 1e300}, paths={}).stdin
    assert b'"i":3,' in given and given.endswith(b'"n":1e+300}\n') and b"1" + b"0" * 4400 in given
    read = json.loads(given, parse_int=lambda digits: len(digits))
    assert read["o"] == {**value, "big": 4401}


@table("style", [ArgumentStyle.FLAGS, ArgumentStyle.ENV])
def test_nul_and_broken_unicode_never_reach_a_process(style):
    declared = manifest(parameters=(parameter("x"), parameter("l", "array")), arguments=style)
    with pytest.raises(InputInvalid, match=r"^x: contains a NUL"):
        process_input(declared, {"x": "a\0b"}, paths={})
    with pytest.raises(InputInvalid, match=r"^x: is not valid Unicode"):
        process_input(declared, {"x": "\udcff"}, paths={})
    with pytest.raises(InputInvalid, match=r"^l\[1\]: "):
        process_input(declared, {"l": ["fine", "\ud800"]}, paths={})


def test_what_the_kernel_does_not_take_is_refused_and_what_is_let_through_arrives():
    fits = "x" * (LONGEST_ARGUMENT - len("--x=") - 1)
    assert arrived(flags([parameter("x")], {"x": fits})) == [f"--x={fits}".encode()]
    for declared in (manifest(parameters=(parameter("x"),)),):
        with pytest.raises(InputInvalid, match=r"^x: is longer than 128 KiB; .*arguments: stdin-json"):
            process_input(declared, {"x": fits + "x"}, paths={})
    with pytest.raises(InputInvalid, match="stdin-json"):  # in bytes, not characters
        flags([parameter("x")], {"x": "é" * (LONGEST_ARGUMENT // 2)})
    whole = process_input(
        manifest(parameters=(parameter("x"),), arguments=ArgumentStyle.STDIN_JSON), {"x": fits * 4}, paths={}
    )
    assert len(whole.stdin) > 4 * len(fits)
    with pytest.raises(InputInvalid, match="together longer than 1 MiB"):
        flags([parameter("x", "array")], {"x": [fits[:100_000]] * 11})
    with pytest.raises(InputInvalid, match=r"^x: is longer than 128 KiB"):
        process_input(
            manifest(parameters=(parameter("x"),), arguments=ArgumentStyle.ENV), {"x": fits + "xxxx"}, paths={}
        )


def test_what_was_let_through_can_be_started():
    words = flags([parameter("x", "array")], {"x": ["y" * 100_000] * 10})
    assert len(arrived(words)) == 10


def test_an_address_becomes_the_place_inside():
    declared = manifest(parameters=(parameter("file", path=PathUse.READ),))
    given = process_input(declared, {"file": "/workspace/a"}, paths={"file": "/srv/a b"})
    assert given.argv == ("--file=/srv/a b",)


def test_what_was_not_declared_or_is_missing_is_refused():
    declared = manifest(parameters=(parameter("a", required=True),))
    with pytest.raises(InputInvalid, match=r"^b: unknown parameter"):
        process_input(declared, {"a": "x", "b": "y"}, paths={})
    with pytest.raises(InputInvalid, match=r"^a: missing required parameter"):
        process_input(declared, {}, paths={})


def test_the_environment_takes_what_fits():
    declared = manifest(parameters=(parameter("x"),), arguments=ArgumentStyle.ENV)
    fits = "v" * (LONGEST_ARGUMENT - len("FORGE_ARG_X=") - 1)
    env = process_input(declared, {"x": fits}, paths={}).env
    told = [sys.executable, "-c", "import os; print(len(os.environ['FORGE_ARG_X']))"]
    out = subprocess.run(told, env={**os.environ, **env}, capture_output=True, check=True).stdout
    assert int(out) == len(fits)
