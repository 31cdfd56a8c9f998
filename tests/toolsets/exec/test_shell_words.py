"""Words of one command, and the position of what needs a shell."""

from __future__ import annotations

import pytest
from tests.tables import table

from golem_forge.tools.validation import InputInvalid
from golem_forge.toolsets.exec.shell import split_words


@table(
    ("text", "words"),
    [
        ("git status", ("git", "status")),
        ("  git \t status  ", ("git", "status")),
        ('git commit -m "a & b"', ("git", "commit", "-m", "a & b")),
        ('grep "a|b" f', ("grep", "a|b", "f")),
        ("echo '$(x) ${y} `z` | & ; < > ( )'", ("echo", "$(x) ${y} `z` | & ; < > ( )")),
        ('echo "; < > | & ( )"', ("echo", "; < > | & ( )")),
        ('echo $VAR ~ * "$HOME"', ("echo", "$VAR", "~", "*", "$HOME")),
        ("a'b'\"c\"d ''", ("abcd", "")),
        (r"grep a\|b \$x", ("grep", "a|b", "$x")),
        (r'echo "\"\\\$\x"', ("echo", r'"\$\x')),
        ("", ()),
    ],
)
def test_words(text: str, words: tuple[str, ...]) -> None:
    assert split_words(text) == words


@table(
    ("text", "found", "position"),
    [
        ("ls -l | wc", "|", 6),
        ("grep a|b f", "|", 6),
        ("a && b", "&", 2),
        ("a;b", ";", 1),
        ("cat <f", "<", 4),
        ("cat >f", ">", 4),
        ("(ls)", "(", 0),
        ("ls)", ")", 2),
        ("ls\nrm x", "\\n", 2),
        ("echo `x`", "`", 5),
        ("echo $(x)", "$(", 5),
        ('echo "${x}"', "${", 6),
        ('echo "$(x)"', "$(", 6),
        ('echo "`x`"', "`", 6),
        ("ls \\\nx", "\\n", 4),
    ],
)
def test_what_needs_a_shell_is_refused_with_its_position(text: str, found: str, position: int) -> None:
    with pytest.raises(InputInvalid) as refused:
        split_words(text)
    assert refused.value.message == f"shell runs one program; '{found}' at position {position} needs exec_command."


@table(("text", "position"), [("echo 'a", 5), ('echo x"a b', 6), ("echo a\\", 6)])
def test_what_is_not_closed_is_named_with_its_position(text: str, position: int) -> None:
    with pytest.raises(InputInvalid, match=f"at position {position} "):
        split_words(text)
