"""The programs, and git's subcommands, whose listed options only read, as data: to be read beside the specification.

What is not listed is not proven. Adding an option here means having looked for every way in which it can write, start a
program, reach a remote, follow a file forever or read a file that no operand names.

Programs, one row each: its letters, then its long flags. A letter followed by `:` takes a value and so ends a cluster,
one followed by `?` takes a value only where it is glued to it (`-w8`); a long flag followed by `:` takes one as `--flag
value` or `--flag=value`. `apart`: the program looks for the values of a cluster in the words after it (`tree -Lo 2
FILE`), so that a letter with a value must be the last one. Programs that start others (`egrep` and `fgrep` start
whatever `grep` is first on PATH) have no row, and a program that is a script on this machine is not proven whatever its
name, unless it is in `HARMLESS_SCRIPTS`.

Git: only full spellings count, although git takes any unambiguous beginning. Left out on purpose: `--output`,
`--ext-diff`, `--textconv`, `--filters`, `--no-index`, `-O` (a pager, an order file), `-S` of blame and every other
option that reads a file, `--full-diff` and `--literal-pathspecs` (they undo the paths that are left out),
`--show-signature` and `%G…` (they start `gpg.program`), `--submodule` and `--recurse-submodules` (a git of its own with
the submodule's settings), `-v` of status (external diffs), `--column`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.policy.shell.arguments import names
from golem_forge.sandbox.protected import SECRET_GLOBS

OperandForm = Literal["paths", "text", "pattern", "find", "sed", "awk", "test", "date", "printf", "version"]

COLOR_VALUES = frozenset({"auto", "always", "never"})


@dataclass(frozen=True, slots=True)
class ReadOnlyRow:
    operands: OperandForm
    switches: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    at_most: int | None = None
    counted: bool = False  # `-N` for a number N
    pattern_flags: frozenset[str] = frozenset()  # given one of these, no operand is a pattern
    lists_cwd: bool = False  # without a path it reads the working directory
    optional: frozenset[str] = frozenset()  # a value may be glued to these, and ends the cluster
    apart: bool = False  # nothing is glued to a letter with a value
    old_operands: bool = False  # an operand that begins with `+` is an option of old: `tail +1f`


def _row(
    operands: OperandForm,
    options: str = "",
    *,
    at_most: int | None = None,
    counted: bool = False,
    pattern_flags: str = "",
    lists_cwd: bool = False,
    apart: bool = False,
    old_operands: bool = False,
) -> ReadOnlyRow:
    switches: set[str] = set()
    valued: set[str] = set()
    optional: set[str] = set()
    by_mark = {":": valued, "?": optional}
    for word in options.split():
        if word.startswith("--"):
            (valued if word.endswith(":") else switches).add(word.rstrip(":"))
            continue
        for index, letter in enumerate(word):
            if letter not in by_mark:
                by_mark.get(word[index + 1 : index + 2], switches).add("-" + letter)
    return ReadOnlyRow(
        operands,
        frozenset(switches),
        frozenset(valued),
        at_most,
        counted,
        names(pattern_flags),
        lists_cwd,
        frozenset(optional),
        apart,
        old_operands,
    )


READ_ONLY_TABLE: dict[str, ReadOnlyRow] = {
    "ls": _row(
        "paths",
        "1AaBCcdFGghiklmnopRrSstuXx "
        "--all --almost-all --color --human-readable --recursive --reverse --directory --full-time",
        lists_cwd=True,
    ),
    "cat": _row("paths", "AbEensTtuv"),
    "tac": _row("paths", "br"),
    "rev": _row("paths"),
    "nl": _row("paths", "b:n:s:v:w:"),
    "paste": _row("paths", "d:sz"),
    "head": _row("paths", "n:c:qv --lines: --bytes:", counted=True),
    "tail": _row("paths", "n:c:qv --lines: --bytes:", counted=True, old_operands=True),
    "wc": _row("paths", "cLlmw"),
    "cut": _row("paths", "b:c:d:f:sz --complement"),
    "tr": _row("text", "Ccdst"),
    "grep": _row(
        "pattern",
        "abcEFGHhiLlnoPqRrsvwxzA:B:C:e:m: --include: --exclude: --exclude-dir: --color",
        pattern_flags="-e",
    ),
    "rg": _row(
        "pattern",
        "cFHilnoqSsUuvwxA:B:C:e:g:m:T:t: "
        "--files --glob: --hidden --no-ignore --type: --max-count: --line-number --json",
        pattern_flags="-e --files",
        lists_cwd=True,
    ),
    "find": _row("find", lists_cwd=True),
    "sed": _row("sed"),
    "awk": _row("awk"),
    "test": _row("test"),
    "tree": _row("paths", "adfishpDtrCnL:I:P: --dirsfirst --noreport --gitignore", lists_cwd=True, apart=True),
    "od": _row("paths", "A:bcdovxt:N:j:w?", old_operands=True),
    "fold": _row("paths", "bsw:"),
    "column": _row("paths", "ts:o:"),
    "sort": _row("paths", "bCcdfghiMmnRruVzk:t:"),
    "uniq": _row("paths", "cDdiuzf:s:w:", at_most=1),
    "stat": _row("paths", "c:fLt --format:"),
    "file": _row("paths", "bi --mime-type"),
    "du": _row("paths", "achkmsxd: --max-depth:", lists_cwd=True),
    "df": _row("paths", "hikT"),
    "basename": _row("paths", "as:z"),
    "dirname": _row("paths", "z"),
    "realpath": _row("paths", "emqsz"),
    "readlink": _row("paths", "efmnqz"),
    **dict.fromkeys(("md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum"), _row("paths", "btz")),
    "cmp": _row("paths", "bls"),
    "comm": _row("paths", "123"),
    "diff": _row("paths", "abBcdiNqrstuwyU:"),
    "echo": _row("text", "neE"),
    "printf": _row("printf"),
    "date": _row("date", "u", at_most=1),
    "pwd": _row("text", "LP"),
    **dict.fromkeys(("true", "false", "whoami", "expr"), _row("text")),
    "id": _row("text", "Ggnru"),
    "uname": _row("text", "amnrsv"),
    "which": _row("text", "a"),
    **dict.fromkeys(("nproc", "arch"), _row("text", at_most=0)),
    **dict.fromkeys(("python", "python3", "node", "make"), _row("version")),
    "seq": _row("text", "f:s:w"),
}

ONE_FORM = frozenset(name for name, row in READ_ONLY_TABLE.items() if row.operands in ("awk", "test", "version"))
"""Programs that are proven in one form only. In any other form they are as unknown as a program without a row."""

HARMLESS_SCRIPTS = names("which")
"""A shell script on Debian that uses nothing but the shell's own commands."""

FIND_TESTS = names("-empty -prune -print -print0 -a -o -not")
FIND_VALUED = names("-name -iname -path -ipath -type -size -mtime -mmin -newer -maxdepth -mindepth -perm -user -group")


class GitOperands(StrEnum):
    """The kind of a subcommand's operands."""

    NAMES = "names"
    """Revisions and paths, not to be told apart: each is judged as the path that it could be."""
    PATTERN = "pattern"
    """A pattern first, unless an option gave one; then as above."""
    LISTED = "listed"
    """Names to list, if one of `listing` is given; else they would be created."""
    NONE = "none"


class GitShows(StrEnum):
    """What a subcommand prints of the files in a repository and its history."""

    NAMES = "names"
    """Names, ids and what people wrote about commits."""
    WALK = "walk"
    """Commits, and what they changed in files; it takes paths that are left out."""
    TREES = "trees"
    """Content of whatever it meets; it takes paths that are left out."""
    FILES = "files"
    """The content of what its operands name."""


@dataclass(frozen=True, slots=True)
class GitRow:
    """One subcommand. `glued` options take their value after `=`, or none; `valued` ones need one, after `=` or as the
    next word, short ones glued to them (`-n5`) or as the next word. No value in a word of its own begins with `-`."""

    switches: frozenset[str] = frozenset()
    glued: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    numbered: frozenset[str] = frozenset()  # letters with a number glued to them: `-U3`, `-M90%`
    counted: bool = False  # `-5`
    clusters: bool = False  # `-sb` is `-s -b`
    operands: GitOperands = GitOperands.NAMES
    pattern_flags: frozenset[str] = frozenset()
    listing: frozenset[str] = frozenset()
    content: bool = False  # it shows what is in files of the work tree
    diffs: bool = False  # it can start a diff driver or a text conversion unless it is told not to
    shows: GitShows = GitShows.NAMES
    showing: frozenset[str] = frozenset()  # if there are any, it shows content only with one of these options
    objects: bool = False  # an operand may be any object of the repository: a file, of which no name is known
    required: frozenset[str] = frozenset()  # it is known to only read with one of these


_DIFF_SWITCHES = names(
    "-p -u --patch -s --no-patch --raw --patch-with-raw --patch-with-stat --numstat --shortstat --summary"
    " --compact-summary --cumulative -z --name-only --name-status --no-color --no-renames --check --full-index --binary"
    " -M -C -B --find-copies-harder -R -a --text -b -w --ignore-space-at-eol --ignore-cr-at-eol --ignore-space-change"
    " --ignore-all-space --ignore-blank-lines -W --function-context --minimal --patience --histogram"
    " --indent-heuristic --no-indent-heuristic --no-prefix --pickaxe-all --pickaxe-regex --exit-code --quiet"
    " --no-ext-diff --no-textconv --no-color-moved --no-relative -D --irreversible-delete -t -r"
)
_DIFF_GLUED = names(
    "--stat --stat-width --stat-name-width --stat-count --stat-graph-width --dirstat --color --abbrev --find-renames"
    " --find-copies --unified --inter-hunk-context --diff-algorithm --diff-filter --word-diff --word-diff-regex"
    " --color-words --color-moved --color-moved-ws --ws-error-highlight --src-prefix --dst-prefix --line-prefix"
    " --relative --ignore-submodules --ignore-matching-lines --diff-merges --break-rewrites"
)
_DIFF_VALUED = names("-S -G -I")
_DIFF_NUMBERED = names("-M -C -B -U -l")

_WALK_SWITCHES = names(
    "--oneline --graph --all --no-decorate --clear-decorations --source --merges --no-merges --first-parent"
    " --reverse --topo-order --date-order --author-date-order --boundary --left-right --cherry --cherry-mark"
    " --cherry-pick --left-only --right-only --simplify-by-decoration --simplify-merges --full-history --dense --sparse"
    " --ancestry-path --show-pulls -g --walk-reflogs --reflog --merge --not --children --parents --timestamp --count"
    " --abbrev-commit --no-abbrev-commit --no-abbrev -i --regexp-ignore-case -E --extended-regexp -F --fixed-strings"
    " -P --perl-regexp --basic-regexp --all-match --invert-grep --relative-date --no-notes --remove-empty --root"
    " --show-linear-break --no-max-parents --no-min-parents"
)
_WALK_GLUED = names(
    "--pretty --format --branches --tags --remotes --decorate --no-walk --min-parents --max-parents --since-as-filter"
)
_WALK_VALUED = names(
    "-n --max-count --skip --since --after --until --before --author --committer --grep --grep-reflog --glob --exclude"
    " --date"
)
_QUIET = names(
    "-s --no-patch --raw --numstat --shortstat --summary --compact-summary --cumulative -z --name-only --name-status"
    " --no-color --no-renames -M -C -B --find-copies-harder --full-index --exit-code --quiet --no-ext-diff"
    " --no-textconv --no-color-moved --no-relative -t -r --stat --stat-width --stat-name-width --stat-count"
    " --stat-graph-width --dirstat --color --abbrev --find-renames --find-copies --diff-filter --ignore-submodules"
    " --relative --line-prefix -l"
)
"""Options of diffs that show no line of a file."""
_MERGE_DIFFS = names("-m -c --cc --remerge-diff")
_LOG_SWITCHES = _WALK_SWITCHES | names("--use-mailmap --mailmap --no-mailmap --log-size --notes")
_LOG_GLUED = _WALK_GLUED | names("--decorate-refs --decorate-refs-exclude")
_SHOW = GitRow(
    switches=_DIFF_SWITCHES | _LOG_SWITCHES | _MERGE_DIFFS,
    glued=_DIFF_GLUED | _LOG_GLUED,
    valued=_DIFF_VALUED | _WALK_VALUED,
    numbered=_DIFF_NUMBERED,
    counted=True,
    diffs=True,
    shows=GitShows.TREES,
    objects=True,
)
_LOG = replace(
    _SHOW,
    switches=_SHOW.switches | names("--follow"),
    valued=_SHOW.valued | names("-L"),
    shows=GitShows.WALK,
    showing=(_DIFF_SWITCHES | _DIFF_GLUED | _DIFF_VALUED | _DIFF_NUMBERED | _MERGE_DIFFS | names("-L")) - _QUIET,
    objects=False,
)
_STASH_LIST = GitRow(
    # It takes no paths, so nothing can be left out of what it would show.
    switches=_LOG_SWITCHES | (_DIFF_SWITCHES & _QUIET),
    glued=_LOG_GLUED | (_DIFF_GLUED & _QUIET),
    valued=_WALK_VALUED,
    counted=True,
    diffs=True,
)
_REF_LIST = names("--contains --no-contains --merged --no-merged --points-at")
_REF_GLUED = names("--color --abbrev") | _REF_LIST

GIT_TABLE: dict[tuple[str, ...], GitRow] = {
    ("status",): GitRow(
        switches=names(
            "-s -b -z --short --branch --show-stash --long --ahead-behind --no-ahead-behind --renames --no-renames"
            " -u -uno -unormal -uall"
        ),
        glued=names("--porcelain --untracked-files --ignored --ignore-submodules --find-renames"),
        clusters=True,
    ),
    ("log",): _LOG,
    ("show",): _SHOW,
    ("stash", "list"): _STASH_LIST,
    ("diff",): GitRow(
        switches=_DIFF_SWITCHES | names("--cached --staged --merge-base --base --ours --theirs -0 -1 -2 -3 -c --cc"),
        glued=_DIFF_GLUED,
        valued=_DIFF_VALUED,
        numbered=_DIFF_NUMBERED,
        content=True,
        diffs=True,
        shows=GitShows.TREES,
        objects=True,
    ),
    ("blame",): GitRow(
        switches=names(
            "-b --root -s -e -f -n -l -t -w -M -C -c -p --porcelain --line-porcelain --incremental --show-stats"
            " --show-name --show-number --show-email --progress --no-progress --color-lines --color-by-age"
            " --first-parent --reverse --minimal --no-textconv"
        ),
        glued=names("--abbrev"),
        valued=names("-L --since --date --ignore-rev"),
        numbered=names("-M -C"),
        content=True,
        diffs=True,
        shows=GitShows.FILES,
    ),
    ("shortlog",): GitRow(
        switches=names(
            "-n --numbered -s --summary -e --email -c --committer --all --merges --no-merges --first-parent"
        ),
        glued=names("--format --group --branches --tags --remotes"),
        valued=names("--since --after --until --before --author --grep --max-count"),
        clusters=True,
    ),
    ("describe",): GitRow(
        switches=names("--all --tags --contains --long --always --exact-match --first-parent --debug --broken"),
        glued=names("--abbrev --dirty --candidates --match --exclude"),
    ),
    ("rev-parse",): GitRow(
        switches=names(
            "--verify -q --quiet --symbolic --symbolic-full-name --all --show-toplevel --show-prefix --show-cdup"
            " --git-dir --absolute-git-dir --git-common-dir --is-inside-work-tree --is-inside-git-dir --not"
            " --is-bare-repository --is-shallow-repository --show-ref-format --revs-only --no-revs --flags --no-flags"
        ),
        glued=names(
            "--abbrev-ref --short --branches --tags --remotes --glob --exclude --since --after --until --before"
            " --path-format --disambiguate --show-object-format"
        ),
    ),
    ("rev-list",): GitRow(
        switches=_WALK_SWITCHES | names("--objects --header --no-commit-header --quiet"),
        glued=_WALK_GLUED | names("--abbrev --color"),
        valued=_WALK_VALUED,
        counted=True,
    ),
    ("ls-files",): GitRow(
        switches=names(
            "-c -d -m -o -i -s -u -k -t -v -z --cached --deleted --modified --others --ignored --stage --unmerged"
            " --killed --directory --no-empty-directory --eol --full-name --exclude-standard --error-unmatch"
            " --deduplicate --debug"
        ),
        glued=names("--abbrev --format --exclude --with-tree"),
        valued=names("-x"),
        clusters=True,
    ),
    ("ls-tree",): GitRow(
        switches=names("-d -r -t -l -z --long --name-only --name-status --object-only --full-name --full-tree"),
        glued=names("--abbrev --format"),
        clusters=True,
    ),
    ("cat-file",): GitRow(
        switches=names("-t -s -e -p --batch-all-objects --buffer --unordered"),
        glued=names("--batch-check"),  # `--batch` shows files whose names come from elsewhere
        shows=GitShows.FILES,
        showing=names("-p"),
        objects=True,
        required=names("-t -s -e -p --batch-check"),
    ),
    ("grep",): GitRow(
        switches=names(
            "-i -w -v -h -H -n -l -L -c -o -q -z -a -I -E -G -P -F -W -p --ignore-case --word-regexp --invert-match"
            " --line-number --column --files-with-matches --files-without-match --name-only --count --only-matching"
            " --quiet --text --null --extended-regexp --basic-regexp --perl-regexp --fixed-strings --full-name"
            " --heading --break --show-function --function-context --all-match --and --or --not --cached --untracked"
            " --no-color --no-textconv"
        ),
        glued=names("--color --max-depth --threads --context --after-context --before-context --max-count"),
        valued=names("-A -B -C -e -m"),
        counted=True,
        clusters=True,
        operands=GitOperands.PATTERN,
        pattern_flags=names("-e"),
        content=True,
        shows=GitShows.TREES,
        objects=True,
    ),
    ("branch",): GitRow(
        switches=names(
            "-a -r -v -l -i --list --all --remotes --verbose --no-color --no-abbrev --ignore-case --show-current"
        ),
        glued=_REF_GLUED,
        valued=names("--format --sort"),
        clusters=True,
        operands=GitOperands.LISTED,
        # `-l` made a branch with a log before git 2.20.
        listing=_REF_LIST | names("--list"),
    ),
    ("tag",): GitRow(
        switches=names("-l -n -i --list --no-color --ignore-case"),
        glued=_REF_GLUED,
        valued=names("--format --sort"),
        numbered=names("-n"),
        operands=GitOperands.LISTED,
        listing=names("-l --list"),
    ),
    ("reflog",): replace(_STASH_LIST, operands=GitOperands.NONE),
    ("merge-base",): GitRow(switches=names("--all --octopus --independent --is-ancestor")),
    ("remote",): GitRow(switches=names("-v --verbose"), operands=GitOperands.NONE),
    ("worktree", "list"): GitRow(switches=names("-v --verbose --porcelain -z"), operands=GitOperands.NONE),
    **dict.fromkeys((("version",), ("--version",)), GitRow(operands=GitOperands.NONE)),
}
"""Rows by the words of the subcommand."""

GIT_SWITCHES = names("--no-pager -P --no-optional-locks --no-replace-objects")
"""Options before the subcommand. `-C` is read too: its value is a path from which the other operands start."""

NO_EXTERNAL_PROGRAMS = ("--no-ext-diff", "--no-textconv")
"""Options added to every subcommand that `diffs`; git has no variable for them."""

EXCLUDED_SECRETS = tuple(f":(exclude,top,icase,glob){glob}" for glob in SECRET_GLOBS)
"""Paths that no proven git shows the content of, in no commit: the walls hide them in the work tree only."""
EVERY_COMMIT = ("--full-history", "--sparse")
"""Options added to walks over all paths, so that excluded paths do not hide commits."""
