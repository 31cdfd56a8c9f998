"""The command finder: what it digs out, and what it leaves alone."""

from __future__ import annotations

from tests.tables import table

from golem_forge.policy.shell.lenient import find_commands


def commands(text: str) -> list[tuple[str, ...]]:
    return [command.words for command in find_commands(text).commands]


TARGET = ("rm", "-rf", "x")


@table(
    "text",
    [
        # spelling
        " rm -rf x", "rm\t-rf\tx", "'rm' -rf x", '"rm" -rf "x"', "r\\m -rf x", "r''m -rf x", "$'\\x72m' -rf x",
        "$'\\162\\u006d' -rf x", "rm \\\n -rf x", "r\\\nm -rf x", "rm -rf $'x'", 'rm -rf $"x"', "r\0m -rf x",
        "{rm,-rf,x}", "rm${IFS}-rf${IFS}x", "rm$IFS-rf$IFS'x'", "r$@m -rf x",
        "$(echo rm) -rf x", "$(echo rm -rf) x", "`echo rm` -rf x", "$(printf '\\x72m') -rf x", "r${1}m -rf x",
        # lists and groups
        "ls; rm -rf x", "ls&&rm -rf x", "ls||rm -rf x", "ls|rm -rf x", "ls|&rm -rf x", "ls&rm -rf x", "ls\nrm -rf x",
        "ls\rrm -rf x", "(rm -rf x)", "( ( rm -rf x ) )", "((rm -rf x))", "{ rm -rf x; }", "! rm -rf x",
        "time rm -rf x",
        "time -p rm -rf x", "time ! rm -rf x", "coproc rm -rf x", "coproc N { rm -rf x; }", "ls # x\nrm -rf x",
        "rm -rf x # ok", "ls '#' ;rm -rf x", "echo a#b; rm -rf x", "rm -rf x >y 2>&1 </dev/null", ">y rm -rf x",
        "A=1 rm -rf x",
        # control flow and functions
        "if rm -rf x; then ls; fi", "if a; then rm -rf x; fi", "if a; then b; elif rm -rf x; then c; else d; fi",
        "if a; then b; else rm -rf x; fi", "while rm -rf x; do a; done", "until a; do rm -rf x; done",
        "for i in a b; do rm -rf x; done", "for ((i=0;i<3;i++)); do rm -rf x; done",
        "select i in a; do rm -rf x; done",
        "case $a in a) rm -rf x;; esac", "case $a in a) ls;; (b|c) rm -rf x;; esac",
        "case a in\na)\nrm -rf x\n;;\nesac",
        "f() { rm -rf x; }; f", "function f { rm -rf x; }", "function f() { rm -rf x; }", "f() ( rm -rf x )",
        "a=(rm -rf x)",
        # substitutions
        "$(rm -rf x)", 'echo "$(rm -rf x)"', "echo `rm -rf x`", 'echo "`rm -rf x`"', "cat <(rm -rf x)",
        "ls > >(rm -rf x)",
        "a=$(rm -rf x)", "echo ${a:-$(rm -rf x)}", 'echo "${a:-`rm -rf x`}"', "echo $(( $(rm -rf x) + 1 ))",
        "echo $((a[$(rm -rf x)]))", "$((echo a); (rm -rf x))", "echo $(case a in a) rm -rf x;; esac)",
        "${ rm -rf x; }",
        "ls > $(rm -rf x)", "cat <<E\n$(rm -rf x)\nE", "cat <<E\n`rm -rf x`\nE", "[ -f \"$(rm -rf x)\" ]",
        "echo $(echo $(echo `rm -rf x`))", "for i in $(rm -rf x); do a; done", "echo \"a 'b $(rm -rf x)' c\"",
        "cat <<'E'\n$(ls)\nE\nrm -rf x", "cat <<-E\n\ta\n\tE\nrm -rf x", "cat <<A <<B\n1\nA\n2\nB\nrm -rf x",
        # shells
        "bash -c 'rm -rf x'", "sh -lc 'rm -rf x'", "bash -ec 'rm -rf x'", "bash -o pipefail -c 'rm -rf x'",
        "bash -euo pipefail -c 'rm -rf x'", "bash +e -c 'rm -rf x'", "bash --norc -c 'rm -rf x'",
        "/bin/bash -c 'rm -rf x'",
        "bash -c -- 'rm -rf x'", "zsh -c 'rm -rf x'", "dash -c 'rm -rf x'", "ksh -c 'rm -rf x'",
        'bash -c "bash -c \'rm -rf x\'"',
        "bash <<E\nrm -rf x\nE", "bash <<'E'\nrm -rf x\nE", "bash -s <<E\nrm -rf x\nE", "sh <<< 'rm -rf x'",
        "cat <<E | sh\nrm -rf x\nE", "{ sh; } <<E\nrm -rf x\nE", "echo 'rm -rf x' | sh", "echo rm -rf x | sh -s",
        "echo -e 'rm\\x20-rf x' | sh", "printf 'rm -rf %s' x | bash", "printf '%s ' rm -rf x | sh",
        "echo rm -rf x | cat | sudo sh",
        "echo 'rm -rf x' | (sh)", "echo 'rm -rf x' | { cat; sh; }", "sh -c '\"$@\"' _ rm -rf x",
        "sh -c '$0 -rf x' rm",
        "sh -c 'rm -rf $1' _ x", "eval rm -rf x", "eval 'rm -rf x'", 'eval "rm" "-rf x"', "trap 'rm -rf x' EXIT",
        "alias l='rm -rf x'",
        # wrappers
        "env rm -rf x", "env A=1 rm -rf x", "env -i A=1 -u B rm -rf x", "env -u B -i rm -rf x", "env - rm -rf x",
        "env -S 'rm -rf x'", "env -S 'rm -rf' x", "env -vS 'rm -rf x'", "env --split-string='rm -rf x'",
        "env -C d rm -rf x",
        "sudo rm -rf x", "sudo -u root rm -rf x", "sudo -uroot -n -- rm -rf x", "sudo --user=root rm -rf x",
        "sudo --user root A=1 rm -rf x", "sudo -E -H bash -c 'rm -rf x'", "doas -u root rm -rf x", "su -c 'rm -rf x'",
        "su root -c 'rm -rf x'", "su - root --command='rm -rf x'", "pkexec --user root rm -rf x", "nice rm -rf x",
        "nice -n 5 rm -rf x", "nice -5 rm -rf x", "ionice -c 3 -n 7 rm -rf x", "nohup rm -rf x &",
        "setsid -f rm -rf x",
        "stdbuf -oL rm -rf x", "stdbuf -o L rm -rf x", "timeout 5 rm -rf x", "timeout -s KILL 5 rm -rf x",
        "timeout --signal=KILL -k 3 5s rm -rf x", "/usr/bin/time -f %e rm -rf x", "watch rm -rf x",
        "watch -n 5 'rm -rf x'",
        "command rm -rf x", "command -p rm -rf x", "builtin rm -rf x", "exec rm -rf x", "exec -a y rm -rf x",
        "busybox rm -rf x",
        "xargs rm -rf x", "xargs -n1 -I{} rm -rf x", "xargs -0 -P 4 rm -rf x", "xargs --max-args=1 rm -rf x",
        "echo x | xargs rm -rf", "echo -n x | xargs -n 1 rm -rf", "printf '%s' x | xargs rm -rf",
        "echo x | xargs -I{} rm -rf {}",
        "echo 'rm -rf x' | xargs -I% sh -c %", "echo x | xargs sh -c 'rm -rf $0'", "parallel rm -rf ::: x",
        "parallel 'rm -rf {}' ::: a; rm -rf x", "echo 'rm -rf x' | parallel", "parallel ::: 'rm -rf x'",
        "find . -exec rm -rf x \\;", "find . -ok rm -rf x ';'", "find . -name a -execdir rm -rf x +",
        "find . -exec sh -c 'rm -rf x' \\;",
        "flock f rm -rf x", "flock -w 3 f rm -rf x", "flock f -c 'rm -rf x'", "chroot d rm -rf x",
        "chroot --userspec=a:b d rm -rf x",
        "unshare -r rm -rf x", "ssh host rm -rf x", "ssh -p 22 -i k u@host 'rm -rf x'", "script -c 'rm -rf x' f",
        "script -q /dev/null rm -rf x", "taskset 1 rm -rf x", "sudo env nice timeout 5 rm -rf x",
        "git -c alias.z='!rm -rf x' z",
        # builtins that expand what was quoted
        "test -v 'a[$(rm -rf x)]'", "[ 'a[`rm -rf x`]' -eq 1 ]", "[[ 'a[$(rm -rf x)]' -eq 1 ]]",
        "printf -v 'a[$(rm -rf x)]' 1", "let 'a=b[$(rm -rf x)]'", "mapfile -C 'rm -rf x' -c 1 a",
        "compgen -C 'rm -rf x'",
        "read 'a[$(rm -rf x)]'", "declare 'a[$(rm -rf x)]=1'",
        # a quote that was opened before this text
        "\"; rm -rf x", "'; rm -rf x", "`; rm -rf x",
    ],
)  # fmt: skip
def test_finds(text: str) -> None:
    assert TARGET in commands(text)


@table(
    "text",
    [
        "echo rm -rf x", "echo 'rm -rf x'", "printf 'rm -rf x'", "grep 'rm -rf x' f", "echo '$(rm -rf x)'",
        "echo \\$\\(rm -rf x",
        "git commit -m 'rm -rf x'", "# rm -rf x", "ls # rm -rf x", "ls # don't; rm -rf x", "cat <<E\nrm -rf x\nE",
        "cat <<'E'\n$(rm -rf x)\nE\nls", "cat <<E > f\nrm -rf x\nE", "echo \"a; rm -rf x\"", "echo '; rm -rf x'",
        "echo a\\;rm -rf x",
        "command -v rm -rf x", "git commit -m \"$(cat <<'E'\nit's: rm -rf x (don't)\nE\n)\"",
        "echo $((1 && 2)) rm -rf x",
        "bash script.sh 'rm -rf x'", "echo 'rm -rf x' | cat", "trap - EXIT", "find . -name 'rm -rf x'",
        "xargs echo rm -rf x",
        "python3 -c 'rm -rf x'", "printf 'a[$(rm -rf x)]'", "echo rm -rf x | printf -v", "test -f 'rm -rf x'",
        "A='rm -rf x' ls", "ls 'a\nrm -rf x\nb'", "rm -r x", "cat > f <<\\E\n`rm -rf x`\nE",
    ],
)  # fmt: skip
def test_leaves_text_alone(text: str) -> None:
    assert TARGET not in commands(text)


def test_redirections_and_assignments_belong_to_their_command() -> None:
    (command,) = find_commands("A=1 B='x y' make 2>err >>out all").commands
    assert command.words == ("make", "all")
    assert command.assignments == (("A", "1"), ("B", "x y"))
    assert [(redirect.operator, redirect.target) for redirect in command.redirects] == [(">", "err"), (">>", "out")]


def test_who_feeds_whom() -> None:
    found = find_commands("a; sudo b | { c; d | e; } | f").commands
    fed = {command.program: {found[i].program for i in range(*command.fed)} for command in found}
    assert fed["a"] == set()
    assert fed["c"] == {"sudo", "b"}
    assert fed["e"] >= {"sudo", "b", "d"}
    assert fed["f"] == {"sudo", "b", "c", "d", "e"}


@table(
    ("text", "too_deep"),
    [
        ("$(" * 8 + "ls" + ")" * 8, False),
        ("$(" * 9 + "ls" + ")" * 9, True),
        ("(" * 9 + "ls" + ")" * 9, True),
        ("env " * 9 + "ls", True),
        ("env " * 7 + "ls", False),
        ("if a; then " * 9 + "ls; " + "fi; " * 9, True),
        ("$(" * 4000, True),
        ("`\\`" * 1000, False),
        ("${" * 4000, True),
        ("$((" * 4000, True),
        ("{a,b}" * 500, True),
    ],
)
def test_depth(text: str, too_deep: bool) -> None:
    assert find_commands(text).too_deep is too_deep


def test_deep_commands_are_still_found() -> None:
    assert TARGET in commands("$(" * 15 + "rm -rf x" + ")" * 15)
    assert TARGET in commands("$(" * 60 + "ls" + ")" * 60 + "; ls") or find_commands("$(" * 60).too_deep


def hostile_texts(k: int) -> tuple[str, ...]:
    """Built to take long."""
    return (
        "a|" * 1500 * k,
        "{ " * 1500 * k + ") " * 500 * k,
        "echo 'echo x' " + "| sh " * 500 * k,
        "f(){ " * 800 * k,
        "$0;" * 1000 * k,
        "f(){ " + "f;" * 1000 * k + "}",
        "$((" * 5 + "(" * 3000 * k,
        "cat <<E\n" * 800 * k,
        "<<A " * 1500 * k + "\n" * 1500 * k,
        "\\\n" * 3000 * k,
        "'\"" * 3000 * k,
        "cd a;" * 650 * k,
        "a >(b) " * 450 * k,
        '${a:-"' * 900 * k,
        "xargs " * 1000 * k,
        "echo a | xargs " * 400 * k,
        "((" * 1000 * k,
        "$[" * 1000 * k,
        "((1))" * 800 * k,
        "sudo --x " * 800 * k,
        "'a\n'\n" * 400 * k,
        "cat <>(",
    )


def test_hostile_texts_hide_nothing(is_long: bool) -> None:
    """The analysis ends, and what stands after them is found or the text is `too_deep`."""
    for number, text in enumerate(hostile_texts(5 if is_long else 1)):
        found = find_commands(text + "\nrm -rf x")
        assert found.too_deep or TARGET in [command.words for command in found.commands], number
