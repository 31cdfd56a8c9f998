"""LazyModule: a module that is loaded when the first of its names is used."""

from __future__ import annotations

import sys

import pytest

from golem_forge.core.lazy_module import LazyModule


def test_a_lazy_module_is_loaded_with_its_first_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    lazy = LazyModule("this")
    assert "this" not in sys.modules
    assert lazy.d["N"] == "A"
    assert "this" in sys.modules


def test_a_name_that_is_replaced_in_the_module_is_replaced_in_the_lazy_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = LazyModule("colorsys")
    before = lazy.rgb_to_hsv
    with monkeypatch.context() as patched:
        patched.setattr("colorsys.rgb_to_hsv", "another")
        assert lazy.rgb_to_hsv == "another"
    assert lazy.rgb_to_hsv is before
