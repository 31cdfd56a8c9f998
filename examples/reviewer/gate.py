"""Turns the events of `forge run --json` into an exit code: `python3 gate.py review.jsonl`.

Prints each finding as an annotation of GitHub Actions. Exit: 0 approved, 1 changes requested, 2 no verdict to read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def escaped(text: object) -> str:
    """A finding is a model's text. Unescaped, a line break in it could start a workflow command of its own."""
    marks = {"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"}
    return "".join(marks.get(char, char) for char in str(text))


def main(file: Path) -> int:
    try:
        result = json.loads(file.read_text().splitlines()[-1])["data"]
        review = json.loads(result["response"])
        verdict, findings = review["verdict"], review["findings"]
    except (OSError, LookupError, ValueError, TypeError) as problem:
        print(f"no verdict in {file}: {problem}", file=sys.stderr)
        return 2
    for finding in findings:
        where = f"file={escaped(finding['file'])},line={escaped(finding['line'])}"
        print(f"::error {where}::{escaped(finding['problem'])}")
    print(f"verdict: {'approve' if verdict == 'approve' else 'request changes'}")
    return 0 if verdict == "approve" else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
