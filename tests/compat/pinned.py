"""Golden files that people can read: JSON in which what is short stands on one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

WIDTH = 120
UPDATE = os.environ.get("FORGE_UPDATE_PINNED") == "1"


def written(value: Any, indent: int = 0, taken: int = 0) -> str:
    """`taken`: what stands before it in its line, or after it."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or indent + taken + len(line) <= WIDTH:
        return line
    inner = " " * (indent + 1)
    if isinstance(value, list):
        parts = [inner + written(each, indent + 1, 1) for each in value]
        return "[\n" + ",\n".join(parts) + "\n" + " " * indent + "]"
    keys = {key: json.dumps(key, ensure_ascii=False) + ": " for key in value}
    parts = [inner + keys[key] + written(each, indent + 1, len(keys[key]) + 1) for key, each in value.items()]
    return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"


def pinned(file: Path, value: Any) -> Any:
    """What `file` says; `FORGE_UPDATE_PINNED=1` writes `value` there first, nothing else ever does."""
    if UPDATE:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written(value) + "\n", encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))
