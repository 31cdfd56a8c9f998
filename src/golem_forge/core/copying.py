"""Copies of JSON values. Threat: whoever else holds a reference could change a call after it was judged."""

from __future__ import annotations

from typing import Any

from golem_forge.core.canonical import canonical


def own_copy(value: Any) -> Any:
    """The same JSON value, sharing no list and no object with the original; other values are passed on as they are."""
    kind = type(value)
    if kind is dict:
        return {key: own_copy(item) for key, item in value.items()}
    if kind is list:
        return [own_copy(item) for item in value]
    return value


def same_json(one: Any, other: Any) -> bool:
    """Equal as JSON: `True` is not `1`."""
    try:
        return canonical(one) == canonical(other)
    except (ValueError, TypeError):
        return False


def with_hidden_restored(edited: Any, shown: Any, original: Any) -> Any:
    """Edited values where a person changed them, the original where they left what they were shown.

    What is shown may hold placeholders for secrets; sending one back means "as it was".
    """
    if same_json(edited, shown):
        return original
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(original, dict):
        return {
            key: with_hidden_restored(item, shown[key], original[key]) if key in shown and key in original else item
            for key, item in edited.items()
        }
    lists = isinstance(edited, list) and isinstance(shown, list) and isinstance(original, list)
    if lists and len(edited) == len(shown) == len(original):
        return [with_hidden_restored(*three) for three in zip(edited, shown, original, strict=True)]
    return edited
