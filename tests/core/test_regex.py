"""Patterns that are compiled at their first use: the same answers, and every one in the package can be compiled."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys

import pytest

import golem_forge
from golem_forge.core.regex import _LazyPattern, regex


def test_it_answers_like_a_compiled_pattern():
    ours, plain = regex(r"(?P<word>[a-z]+)(\d?)", re.IGNORECASE), re.compile(r"(?P<word>[a-z]+)(\d?)", re.IGNORECASE)
    assert ours.pattern == plain.pattern and "flags" not in vars(ours), "not compiled yet"
    for text in ("Ab1 cd", "12", ""):
        for method in ("match", "fullmatch", "search"):
            found, expected = getattr(ours, method)(text), getattr(plain, method)(text)
            assert (found and found.groups()) == (expected and expected.groups())
        assert ours.findall(text) == plain.findall(text) and ours.split(text) == plain.split(text)
        assert ours.sub("x", text) == plain.sub("x", text) and ours.subn("x", text) == plain.subn("x", text)
    assert (ours.flags, ours.groups, ours.groupindex) == (plain.flags, plain.groups, plain.groupindex)
    assert regex(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_a_wrong_pattern_and_a_wrong_name_are_errors():
    with pytest.raises(re.error):
        regex("(").match("x")
    with pytest.raises(AttributeError):
        regex("x").no_such_method  # noqa: B018


def test_every_pattern_of_the_package_can_be_compiled():
    for each in pkgutil.walk_packages(golem_forge.__path__, "golem_forge."):
        if not each.name.endswith(("_child", "__main__")) and ".run.client" not in each.name:
            importlib.import_module(each.name)
    modules = [module for name, module in sys.modules.items() if name.startswith("golem_forge.")]
    patterns = [each for module in modules for each in vars(module).values() if type(each) is _LazyPattern]
    assert len(patterns) > 200
    for each in patterns:
        each.flags  # noqa: B018 - compiles it
