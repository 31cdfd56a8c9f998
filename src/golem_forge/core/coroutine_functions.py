"""Whether calling a function gives a coroutine: `inspect.iscoroutinefunction`, at once for what nearly all are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    plain = function.__func__ if type(function) is MethodType else function
    if type(plain) is FunctionType and plain.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function)
