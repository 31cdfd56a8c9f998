"""Inline script metadata: read as the standard says, bounded, and never executed."""

from __future__ import annotations

import pytest
from tests.tables import table

from golem_forge.usertools.build.requirements import satisfies, script_block
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable


def read(text: str) -> tuple[str, ...] | None:
    found = script_block(text.encode(), "x.py")
    return None if found is None else found.dependencies


def test_the_block_of_the_standard() -> None:
    text = '#!/usr/bin/env python\n# /// script\n# dependencies = [\n#   "a<3",\n#\n#   "b",\n# ]\n# ///\nimport a\n'
    assert read(text) == ("a<3", "b")
    assert read(text.replace("\n", "\r\n")) == ("a<3", "b")


@table(
    "text",
    [
        "print(1)\n",
        '# /// script\n# dependencies = ["a"]\n',  # not closed
        '# /// script\n# dependencies = ["a"]\nx = 1\n# ///\n',  # interrupted
        '# /// other\n# dependencies = ["a"]\n# ///\n',
        ' # /// script\n# dependencies = ["a"]\n# ///\n',
    ],
)
def test_what_is_no_block(text: str) -> None:
    assert read(text) is None


def test_the_last_end_of_the_comment_counts() -> None:
    assert read('# /// script\n# dependencies = ["a"]\n# ///\n# x = 1\n# ///\n'.replace("# ///\n# x", "#\n# x")) == (
        "a",
    )
    with pytest.raises(Unusable):  # what stands between two ends is part of the block
        read('# /// script\n# dependencies = ["a"]\n# ///\n# x = 1\n# ///\n')


@table(
    "text",
    [
        "# /// script\n# dependencies = [\n# ///\n",
        '# /// script\n# dependencies = "a"\n# ///\n',
        "# /// script\n# dependencies = [1]\n# ///\n",
        "# /// script\n# requires-python = 3\n# ///\n",
        "# /// script\n# ///\nx = 1\n# /// script\n# ///\n",
        "# /// script\n" + "# # filling\n" * 10_000 + "# ///\n",
        "# /// script\n# a = " + "[" * 30_000 + "\n# ///\n",
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(Unusable) as caught:
        read(text)
    assert caught.value.diagnostic_code is DiagnosticCode.BUILD_FAILED
    assert caught.value.message.startswith("x.py: ")


@table(
    ("specifier", "expected"),
    [
        ("", True),
        (">=3.11", True),
        (">=3.12", False),
        (">=3.9,<3.12", True),
        ("<3.11", False),
        ("==3.11.*", True),
        ("==3.11", False),
        ("==3.11.7", True),
        ("!=3.11.*", False),
        ("~=3.10", True),
        ("~=3.11.5", True),
        ("~=3.12", False),
        (">3", True),
        ("<=3.11.7", True),
        ("3.11", False),
        (">= 3.8 , < 4", True),
    ],
)
def test_version_specifiers(specifier: str, expected: bool) -> None:
    assert satisfies((3, 11, 7), specifier) is expected
