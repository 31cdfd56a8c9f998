"""What the source says below each attribute of a class, for a description: Python itself forgets those strings."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

Words = dict[str, str]


def attribute_words(kind: type) -> Words:
    """Attribute → the string that stands below it, in this class and those above it. Empty without the source."""
    words: Words = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("golem_forge."):
            words |= _of_module(each.__module__).get(each.__name__, {})
    return words


@cache
def _of_module(name: str) -> dict[str, Words]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, KeyError, SyntaxError):
        return {}
    return {each.name: _of_class(each) for each in tree.body if isinstance(each, ast.ClassDef)}


def _of_class(definition: ast.ClassDef) -> Words:
    return {
        above.target.id: inspect.cleandoc(below.value.value)
        for above, below in pairwise(definition.body)
        if isinstance(above, ast.AnnAssign)
        and isinstance(above.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
