"""Token patterns of command rules: which command a pattern matches, and which prefixes are too wide to be offered or
saved.

Two kinds of matching, never swapped. What lets a command run is matched strictly: parsed words, and a program that is
what its name says. What asks or blocks is matched leniently: by basename, in every command the detector found.
"""

from __future__ import annotations

import posixpath

from golem_forge.core.regex import regex
from golem_forge.policy.shell.arguments import names
from golem_forge.policy.shell.git_prover import read_git
from golem_forge.policy.shell.lenient import CommandScan, FoundCommand, program_name
from golem_forge.policy.shell.prover import is_system_shell, same_program
from golem_forge.policy.shell.readonly_table import GIT_TABLE
from golem_forge.policy.shell.strict import CommandWorld, Segment
from golem_forge.policy.shell.wrapper_table import (
    ANY_GIT,
    ANY_SHOWING,
    ANY_SUBCOMMAND,
    CHANGING_WORDS,
    COVERED_FORMS,
    COVERED_OPERANDS,
    DESTROYING_WORDS,
    ONE_BY_ONE,
    SAVED_PROGRAMS,
    SAVED_SUBCOMMANDS,
    TASK_RUNNERS,
    CoveredForm,
)
from golem_forge.policy.shell.wrappers import SHELLS, hidden_commands, is_wrapper

Token = str | tuple[str, ...]
Pattern = tuple[Token, ...]


def matches_strict(pattern: Pattern, segment: Segment, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """Are the segment's leading words the pattern? `places` are its working directories (`segment_places`)."""
    if not pattern or len(segment.words) < len(pattern):
        return False
    if not all(is_system_shell(shell, world) for shell in segment.shells):
        return False
    if not any(_is_program(name, segment.words[0], world, places) for name in _choices(pattern[0])):
        return False
    return all(word in _choices(token) for token, word in zip(pattern[1:], segment.words[1:], strict=False))


def matches_prefix(pattern: Pattern, segment: Segment, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """Like `matches_strict`, for a rule that names only the first words and leaves the others open.

    Threat: `git log --output=FILE` writes and `git diff --ext-diff` runs what a repository names. A person who allowed
    `git log` meant reading, so of git's reading subcommands only the options that are known to read are covered.
    """
    if not matches_strict(pattern, segment, world, places):
        return False
    is_whole = len(segment.words) == len(pattern)
    return is_whole or posixpath.basename(segment.words[0]) != "git" or not read_git(segment.words[1:]).option


def matches_offered(pattern: Pattern, segment: Segment, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """Like `matches_prefix`, for a rule that a card offered: a person did not write it, but said yes to one command.

    Threat: an agent that got a yes for `pytest -q` tries `pytest -p evil`, for `make test` `make test SHELL=evil`, for
    `git commit` `git commit --no-verify`. So of programs in `COVERED_FORMS` only the options and operands there are
    covered.
    """
    if not matches_prefix(pattern, segment, world, places):
        return False
    return len(segment.words) == len(pattern) or not _uncovered_word(len(pattern), segment.words)


def matches_exact(pattern: Pattern, segment: Segment, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """Are the segment's words the pattern, all of them?"""
    return len(segment.words) == len(pattern) and matches_strict(pattern, segment, world, places)


def matches_lenient(pattern: Pattern, found: CommandScan) -> bool:
    """Does any command in the text begin with the pattern, options between its tokens skipped?"""
    return any(_begins_with(pattern, command) for command in found.blockable)


def matches_lenient_exact(pattern: Pattern, found: CommandScan) -> bool:
    """Is any command in the text the pattern, word for word, its program by basename?"""
    candidates = (each for each in found.blockable if pattern and len(each.words) == len(pattern))
    return any(
        _names_program(pattern[0], command)
        and all(word in _choices(token) for token, word in zip(pattern[1:], command.words[1:], strict=True))
        for command in candidates
    )


def _choices(token: Token) -> tuple[str, ...]:
    return (token,) if isinstance(token, str) else token


def _is_program(name: str, word: str, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """Is `word` the program, or does it lead, as a path, from every possible directory to the file the rule names?"""
    if "/" not in name:
        return word == name or same_program(word, name, world)
    if not name.startswith("/") or "/" not in word or not places:
        return False
    for place in places:
        wanted, given = world.operand(name, place), world.operand(word, place)
        if wanted.kind == "inside" and given.kind == "inside":
            if wanted.virtual != given.virtual:
                return False
        elif not same_program(word, name, world):
            return False
    return True


def _begins_with(pattern: Pattern, command: FoundCommand) -> bool:
    if not pattern or not command.words or not _names_program(pattern[0], command):
        return False
    words = command.words
    places = {1}  # where the next token may stand
    for token in pattern[1:]:
        choices = _choices(token)
        places = {index + 1 for index in _skipping_options(words, places) if words[index] in choices}
    return bool(places)


def _skipping_options(words: tuple[str, ...], places: set[int]) -> set[int]:
    """Every place reachable by skipping options, each with or without the one word after it."""
    reached: set[int] = set()
    waiting = list(places)
    while waiting:
        index = waiting.pop()
        if index in reached or index >= len(words):
            continue
        reached.add(index)
        if words[index].startswith("-"):
            waiting += [index + 1, index + 2]
    return reached


def _names_program(token: Token, command: FoundCommand) -> bool:
    return any(program_name(name) in (command.program, program_name(command.words[0])) for name in _choices(token))


# Programs that run other programs or code: what a file, an option, an operand or a key names (`vim f -c '!…'`). No rule
# for everything that begins with such a name is offered or suggested; subcommands tell some of them apart.
RUNS_OTHERS = names(
    # shells' helpers, wrappers, and what watches or repeats commands
    "xargs parallel find fd fdfind env eval script scriptreplay expect unbuffer watch watchexec entr nodemon time nice"
    " nohup timeout strace ltrace perf valgrind rr gdb gdbserver lldb bpftrace dtrace systemd-run at batch crontab"
    " start-stop-daemon run-parts faketime proot fakechroot firejail bwrap flatpak snap tmux screen zellij dtach abduco"
    # editors, pagers and readers
    " vim vi nvim view vimdiff rvim gvim ex ed red emacs emacsclient nano pico micro helix hx kak joe mcedit mc ranger"
    " nnn lf vifm less more most man info pinfo w3m lynx elinks mutt"
    # languages
    " awk gawk mawk nawk sed perl ruby irb node nodejs ts-node tsx deno bun php lua luajit R Rscript julia octave"
    " matlab java jshell groovy scala sbt kotlin clojure clj lein ghci runghc stack cabal ocaml erl elixir iex mix"
    " racket guile sbcl clisp tclsh wish osascript pwsh powershell ipython jupyter m4 dc"
    # builds and tasks
    " make gmake bmake ninja just task rake gradle gradlew mvn mvnw ant bazel bazelisk buck buck2 scons waf meson cmake"
    " ctest tox nox invoke fab pre-commit lefthook husky act earthly gcc g++ cc c++ clang clang++ ld tcc go cargo"
    # databases and archives
    " psql mysql mariadb sqlite3 sqlite duckdb mongo mongosh tar bsdtar zip 7z 7za cpio rpm dpkg"
    # packages
    " pip pip3 npm npx yarn pnpm uv uvx pipx poetry hatch pdm conda mamba gem bundle composer brew apt apt-get"
    # machines and remotes
    " docker podman nerdctl kubectl helm terraform tofu ansible ansible-playbook vagrant packer salt aws gcloud ssh"
    " sshpass mosh sftp ftp lftp telnet scp rsync curl wget socat bunx pnpx git git-difftool git-mergetool forge"
)
# More of the kind. Only offers leave them out: a person who writes such a rule by hand has named it.
_RUNS_OTHERS_TOO = RUNS_OTHERS | names(
    "pry mono wine octave-cli gnuplot latex pdflatex xelatex lualatex tex pdftex latexmk split csplit sort rg fzf tig"
    " nc ncat netcat gulp grunt lerna nx turbo docker-compose podman-compose direnv mise rtx asdf pyenv rbenv nodenv"
    " nvm opam ip ctags cscope git-lfs sudoedit visudo vipw xdg-open open start gio flatpak-spawn distrobox toolbox"
    " lazygit gitui ffmpeg convert magick pandoc doxygen sphinx-build mkdocs jekyll hugo rpmbuild dpkg-buildpackage"
    " debuild fakeroot alternatives update-alternatives logrotate anacron supervisord pm2 foreman overmind honcho"
    # run the code or the module that an operand names
    " timeit pdb pudb ipdb cProfile profile trace runpy code doctest zipapp venv virtualenv ensurepip http.server flask"
    " uvicorn gunicorn hypercorn daphne streamlit django-admin swipl ghc rustc javac snakemake nextflow bats shunit2"
    " guard thor rackup puma artisan wp drush hyperfine concurrently redis-cli clickhouse-client cqlsh influx"
    # delete or overwrite what an operand names, or change who may do what
    " unlink rmdir shred truncate ln install rename mmv sponge uniq unzip gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd"
    " patch dos2unix unix2dos dropdb kill pkill killall mount umount chgrp setfacl chattr passwd useradd usermod"
    " userdel chsh iptables nft setcap ssh-keygen ssh-add gpg openssl rclone restic borg"
    # write what a second operand names, or what lies beside the first
    " xxd cpp json.tool zipfile tarfile compileall py_compile pickle ar ranlib strip objcopy lz4 unlz4 lzma unlzma"
    " brotli lzip lzop pigz pbzip2 compress uncompress pdftotext pdftops pdftoppm pdfunite pdfseparate ps2pdf epstopdf"
    " qpdf pdftk gs sox cwebp dwebp tiffcp rst2html bison yacc flex lex recode ogr2ogr gdal_translate protoc msgfmt tic"
)
# The same program under another name: `gcc-12`, `vim.tiny`, `emacs-nox`, `x86_64-linux-gnu-gcc`, `original-awk`.
_TRIPLET = regex(r"(?:[a-z0-9_]+-){1,3}(?:gnu|gnueabihf|gnueabi|musl|elf|mingw32|android|darwin[0-9.]*)-|original-")
_SUFFIX = regex(r"([-.]?[0-9][0-9.]*|[-.](basic|tiny|nox|gtk3?|athena|multiarch|py|dbg|stable|nightly|wrapper|bin))$")

# Programs that change so much that their name alone says nothing.
_ALONE = RUNS_OTHERS | names("rm mv cp chmod chown dd tee")
_INTERPRETER = regex(r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|Rscript)[0-9.]*")
_PYTHON = regex(r"(python|pypy)[0-9.]*")

# Subcommands that run whatever is named after them: a script of the project, a program, or a program somewhere else.
_SCRIPTS: dict[str, frozenset[str]] = {
    "npm": names("run run-script"),
    **dict.fromkeys(("yarn", "pnpm", "bun"), names("run")),
    "deno": names("run task"),
    "go": names("run tool"),
}
_STARTERS: dict[str, frozenset[str]] = {
    "npm": names("exec x"),
    **dict.fromkeys(("yarn", "pnpm"), names("exec dlx")),
    "bun": names("x"),
    **dict.fromkeys(("uv", "poetry", "hatch", "pdm", "pipx", "conda", "mamba"), names("run")),
    "bundle": names("exec"),
}
_ELSEWHERE: dict[str, frozenset[str]] = {
    **dict.fromkeys(("docker", "podman", "nerdctl"), names("run exec")),
    "kubectl": names("run exec debug"),
    "git": names(
        "difftool mergetool bisect rebase filter-branch config submodule send-email instaweb gui citool help hook"
        " maintenance archive svn p4"
    ),
    "terraform": names("console"),
    "uv": names("tool"),
}
_STARTS_NEXT = names("npx uvx bunx pnpx")
_PROJECT_TASKS = {
    *((program, word) for program in ("npm", "yarn", "pnpm", "bun") for word in _SCRIPTS[program]),
    ("deno", "task"),
    ("go", "tool"),
}
_RUNNERS = {
    program: _SCRIPTS.get(program, frozenset()) | _STARTERS.get(program, frozenset())
    for program in (*_SCRIPTS, *_STARTERS)
} | {**dict.fromkeys(("docker", "podman", "kubectl"), names("run exec")), "uv": names("run tool")}
_LOADING = regex(r"[-+][A-Za-z]*[WXIrodOC]|--(rcfile|init-file|require|import|loader)")
_INFORMING = names("--version --help -V -h")

_SAVED_SCRIPTS = names("npm yarn pnpm")
"""`npm run build`: a script that the project names."""

# Programs that have subcommands, and the subcommands that have subcommands themselves.
_ONE_WORD = (
    names(
        "git hg svn jj npm npx yarn pnpm bun deno pip pip3 pipx uv uvx poetry hatch pdm conda mamba cargo rustup go"
        " docker podman kubectl helm terraform tofu systemctl brew apt apt-get dnf apk dotnet bundle gem rails mix"
        " composer flutter dart swift zig nix ruff"
    )
    | TASK_RUNNERS
)
_TWO_WORDS = names("aws gcloud az gh glab")
_GROUPS: dict[str, frozenset[str]] = {
    "docker": names("compose container image volume network system buildx builder"),
    "podman": names("compose container image volume network system"),
    "git": names("stash remote submodule worktree"),
    "npm": names("config"),
    "uv": names("pip"),
    "go": names("mod"),
    "kubectl": names("config"),
    "terraform": names("state"),
    "rustup": names("toolchain"),
}
_SUBCOMMAND = regex(r"[A-Za-z0-9][\w:.@/-]*")
_WORD_PARTS = regex(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# Of these only what a table lists is offered: git runs aliases, and npm has three names for most of what it does.
_LISTED_ONLY = names("git npm yarn pnpm bun")
_SYSTEM_PLACES = ("/usr/", "/bin/", "/sbin/", "/opt/", "/nix/", "/snap/")
_SCRIPT_FILE = regex(r".*\.(pyw?|[cm]?[jt]sx?|sh|bash|zsh|rb|pl|php|lua|go|rs|R|jar|dll|exe|bat|cmd|ps1)")


# Options without which the same program writes.
_ONLY_LOOKS: dict[str, frozenset[str]] = {
    "tsc": names("--noEmit"),
    "prettier": names("--check -c --list-different -l"),
    **dict.fromkeys(("black", "rustfmt", "fmt", "format"), names("--check --diff")),
    "isort": names("--check --check-only -c --diff"),
    **dict.fromkeys(("gofmt", "shfmt"), names("-l -d")),
    "clang-format": names("--dry-run -n"),
}
_WRITES_AFTER_ALL = names("--write --fix false")
"""Words after such an option with which the program writes: `prettier --check --write`, `tsc --noEmit false`."""


def _covered_form(words: tuple[str, ...]) -> tuple[int, CoveredForm | None]:
    """The form of a command, and how many of its words name it; None: no table speaks of it."""
    skipped = 0
    while (length := _runner_length(words[skipped:])) and len(words) > skipped + length:
        skipped += length
    program = posixpath.basename(words[skipped])
    named = (program, *words[skipped + 1 :])
    for length in (3, 2, 1):
        if form := COVERED_FORMS.get(named[:length]):
            return skipped + length, form
    if program == "git":
        return skipped + 1, ANY_GIT
    if _is_saved_subcommand(program, named):
        return skipped + 1, ANY_SHOWING
    # What follows the script that an interpreter runs is for that script.
    runs_script = _INTERPRETER.fullmatch(program) is not None and program not in _ONE_WORD
    return skipped + 1, None if program in SAVED_PROGRAMS or runs_script else ANY_SUBCOMMAND


def _runner_length(words: tuple[str, ...]) -> int:
    program = posixpath.basename(words[0])
    if _PYTHON.fullmatch(program):
        return 2 if words[1:2] == ("-m",) else 0
    if program in _STARTS_NEXT:
        return 1
    return 2 if words[1:2] and words[1] in _STARTERS.get(program, ()) else 0


def _uncovered_word(length: int, words: tuple[str, ...]) -> str:
    """The first word after the `length` that a rule names which the rule does not cover; empty if there is none."""
    if posixpath.basename(words[0]) == "git" and read_git(words[1:]).row is not None:
        return ""  # `matches_prefix` has looked at the options of its reading subcommands
    named, form = _covered_form(words)
    if form is None:
        return ""
    options = form.options
    *_, before, last = ("", "", *words[:length])
    only_looks = last in _ONLY_LOOKS.get(posixpath.basename(before), ())
    for word in words[max(length, named) :]:
        if only_looks and word in _WRITES_AFTER_ALL:
            return word
        if word == "--" and form.script_options:
            options = form.script_options
        elif word.startswith("-"):
            if not _is_covered_option(word, options, apart=form.apart):
                return word
        elif (
            not COVERED_OPERANDS[form.operands].fullmatch(word)
            or (form.operands == "names" and ".." in word)
            or (form.operands == "nouns" and _has_part_of(word, CHANGING_WORDS))
        ):
            return word
    return ""


def _has_part_of(word: str, listed: frozenset[str]) -> bool:
    """Is it one of the words, or made of one: `delete`, `delete-all`, `db:drop`, `dropAll`? A path is not."""
    if "/" in word:
        return False
    parts = {part.lower() for part in _WORD_PARTS.findall(word)} | set(_WORD_PARTS.findall(word.lower()))
    return not listed.isdisjoint(parts)


def _is_covered_option(word: str, options: frozenset[str], *, apart: bool = False) -> bool:
    """`apart`: a letter with a value ends its cluster, because its program looks for the value in the next word."""
    flag, equals, _ = word.partition("=")
    if (
        word in ("--version", "--help")
        or word in options
        or f"{word}:" in options
        or (equals and len(flag) > 2 and flag in options)
    ):
        return True
    if word.startswith("--"):
        return False
    for place, letter in enumerate(word[1:], 1):
        if f"-{letter}:" in options:
            return not apart or place == len(word) - 1
        if f"-{letter}" not in options:
            return False
    return len(word) > 1


def leads_offers(prefix: tuple[str, ...]) -> bool:
    """Is a rule for everything that begins with `prefix` the choice that most people want: ordinary work of a project,
    of which `COVERED_FORMS` says what it covers, or a program that only shows something?"""
    _, form = _covered_form(prefix)
    if form in (None, ANY_SUBCOMMAND, ANY_SHOWING, ANY_GIT):
        return is_saved_prefix(prefix)
    return form is not None and form.leads and is_offered_prefix(prefix)


def _named_length(prefix: tuple[str, ...]) -> int:
    """Returns how many words name what runs, including the target of `make` and the script of `npm run`."""
    length, form = _covered_form(prefix)
    names_task = posixpath.basename(prefix[0]) in TASK_RUNNERS or (form is not None and bool(form.script_options))
    return length + 1 if names_task else length


def is_banned_prefix(words: tuple[str, ...]) -> bool:
    """Would a rule for everything that begins with `words` allow nearly anything?"""
    if not words:
        return True
    program, arguments = posixpath.basename(words[0]), words[1:]
    options_only = all(word.startswith("-") for word in arguments)
    if _ends_at_runner(arguments, _RUNNERS.get(program, frozenset())):
        return True
    if program in ("docker", "podman") and arguments in (("compose", "run"), ("compose", "exec")):
        return True
    if program in SHELLS or _INTERPRETER.fullmatch(program):
        # `python -m pip` is as wide as `pip`
        is_module = _PYTHON.fullmatch(program) is not None and arguments[:1] == ("-m",)
        return options_only or _only_loads(arguments) or (is_module and is_banned_prefix(arguments[1:]))
    if is_wrapper(program) and program != "find":
        hidden = list(hidden_commands(program, arguments))
        return options_only or all(not inner.script and is_banned_prefix(inner.words) for inner in hidden)
    # No exemption above this line: `bash -h -c x` and `docker run -h x y` run what follows.
    return program in _ALONE and options_only and not set(arguments) & _INFORMING


def runs_what_it_is_given(words: tuple[str, ...]) -> bool:
    """A shell, interpreter or wrapper whose words leave open what it runs: its input decides, even if they are all."""
    if not words:
        return True
    program = posixpath.basename(words[0])
    runs = program in SHELLS or is_wrapper(program) or _INTERPRETER.fullmatch(program) is not None
    return runs and program != "find" and is_banned_prefix(words)


def _ends_at_runner(arguments: tuple[str, ...], runners: frozenset[str]) -> bool:
    """Is what will be run not named yet: `docker run`, `docker run --rm`, `npm -s run`?"""
    places = [index for index, word in enumerate(arguments) if word in runners]
    return bool(places) and all(word.startswith("-") for word in arguments[places[0] + 1 :])


def _only_loads(arguments: tuple[str, ...]) -> bool:
    """Whether all arguments are options, and their values, that leave the script open: `python -W ignore`, `bash -o
    pipefail`.
    """
    index = 0
    while index < len(arguments) and arguments[index].startswith(("-", "+")):
        index += 2 if _LOADING.fullmatch(arguments[index]) else 1
    return index >= len(arguments)


def is_offered_prefix(prefix: tuple[str, ...]) -> bool:
    """May a rule for everything that begins with `prefix` be offered, or suggested by a model? Stricter than what a
    person may write: of programs that run others only a subcommand that does not."""
    if is_banned_prefix(prefix) or prefix[0].startswith("-"):
        return False
    program = posixpath.basename(prefix[0])
    if _SCRIPT_FILE.fullmatch(program) or not _is_system_path(prefix[0]):
        return False  # a file of the project's, which may be another one at the next call
    named = _subcommand_prefix(program, prefix) if program in _ONE_WORD or program in _TWO_WORDS else prefix[:1]
    if not named or _goes_one_by_one(program, named) or _uncovered_word(_named_length(prefix), prefix):
        return False
    if _INTERPRETER.fullmatch(program) and prefix[1].startswith("-"):
        # `perl -e 1 -e more`: options after the prefix may be code
        is_module = _PYTHON.fullmatch(program) is not None and prefix[1] == "-m"
        return is_module and is_offered_prefix(prefix[2:])
    if program not in RUNS_OTHERS:
        stem = _stem(program)
        if stem in _RUNS_OTHERS_TOO or stem in SHELLS or is_wrapper(stem) or _INTERPRETER.fullmatch(stem):
            return _INTERPRETER.fullmatch(program) is not None
        return True
    if program not in _ONE_WORD and program not in _TWO_WORDS:
        return _INTERPRETER.fullmatch(program) is not None
    if program in _STARTS_NEXT:
        return is_offered_prefix(prefix[1:])
    if named[1] in _ELSEWHERE.get(program, ()):
        return False
    return named[1] not in _STARTERS.get(program, ()) or is_offered_prefix(prefix[2:])


def _is_system_path(program: str) -> bool:
    """Is it a bare name, or a path that no zone has?"""
    return "/" not in program or posixpath.normpath(program).startswith(_SYSTEM_PLACES)


def _goes_one_by_one(program: str, named: tuple[str, ...]) -> bool:
    """Does this subcommand, target or script change something, so that a yes to one is no yes to the next?"""
    listed, subcommand = ONE_BY_ONE.get(program, frozenset()), named[1:]
    if "*" in listed or any(":".join(subcommand[:length]) in listed for length in (1, 2)):
        return True
    if not subcommand or program in _STARTS_NEXT or subcommand[0] in _STARTERS.get(program, ()):
        return False  # what it starts is looked at instead
    if program == "git" and subcommand == ("checkout",):  # of a path it throws changes away; `checkout -b` does not
        return True
    if program in TASK_RUNNERS or (program, subcommand[0]) in _PROJECT_TASKS:
        return _has_part_of(subcommand[-1], DESTROYING_WORDS)
    has_form = any((program, *subcommand[:length]) in COVERED_FORMS for length in (1, 2))
    if has_form or _is_saved_subcommand(program, named):
        return False
    if program in _LISTED_ONLY:
        return program != "git" or not any(subcommand[:length] in GIT_TABLE for length in (1, 2))
    return any(_has_part_of(word, CHANGING_WORDS) for word in subcommand[program in _TWO_WORDS :])


def _is_saved_subcommand(program: str, named: tuple[str, ...]) -> bool:
    listed = SAVED_SUBCOMMANDS.get(program, frozenset())
    return any(":".join(named[1 : 1 + length]) in listed for length in (1, 2))


def is_saved_prefix(prefix: tuple[str, ...]) -> bool:
    """May the rule be kept for good, too? Only what is listed; the rest is for this session, or kept word for word."""
    if not is_offered_prefix(prefix):
        return False
    program, arguments = posixpath.basename(prefix[0]), prefix[1:]
    if _PYTHON.fullmatch(program):
        return arguments[:1] == ("-m",) and is_saved_prefix(arguments[1:]) and arguments[1] in SAVED_PROGRAMS
    if program in _STARTS_NEXT:
        return is_saved_prefix(arguments)
    if arguments and arguments[0] in _STARTERS.get(program, ()):
        return is_saved_prefix(arguments[1:])
    if len(arguments) > 1 and program in _SAVED_SCRIPTS and arguments[0] in _SCRIPTS[program]:
        return _SUBCOMMAND.fullmatch(arguments[1]) is not None
    return program in SAVED_PROGRAMS or _is_saved_subcommand(program, prefix)


def _stem(program: str) -> str:
    """The name without a target before it, and without version or build after it."""
    name = _TRIPLET.sub("", program, count=1) if _TRIPLET.match(program) else program
    while (shorter := _SUFFIX.sub("", name)) and shorter != name:
        name = shorter
    return name


def prefix_choices(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The prefixes worth offering for a command, narrow to wide; none if every one would be too wide."""
    if not words or ("/" in words[0] and not words[0].startswith("/")):
        return []
    program = posixpath.basename(words[0])
    if _PYTHON.fullmatch(program):
        prefix = words[:3] if words[1:2] == ("-m",) else ()
    elif program in _ONE_WORD or program in _TWO_WORDS:
        prefix = _subcommand_prefix(program, words)
    elif is_wrapper(program) or program in SHELLS or _INTERPRETER.fullmatch(program):
        prefix = ()
    else:
        prefix = words[:1]
    prefix = _with_looking_option(prefix, words)
    return [prefix] if prefix and is_offered_prefix(prefix) else []


def _with_looking_option(prefix: tuple[str, ...], words: tuple[str, ...]) -> tuple[str, ...]:
    """Adds an option like `--noEmit` to the prefix: a person who allows `tsc --noEmit` has not allowed `tsc`, which
    writes. Returns an empty prefix if the option does not come first, because a rule knows only leading words.
    """
    looking = _ONLY_LOOKS.get(posixpath.basename(prefix[-1]), frozenset()) if prefix else frozenset()
    if looking.isdisjoint(words[len(prefix) :]):
        return prefix
    following = words[len(prefix) : len(prefix) + 1]
    return (*prefix, *following) if following[0] in looking else ()


def _subcommand_prefix(program: str, words: tuple[str, ...]) -> tuple[str, ...]:
    second = words[1] if len(words) > 1 else ""
    if program == "git" and words[1:3] == ("checkout", "-b"):
        return words[:3]
    is_group = second in _GROUPS.get(program, ()) or second in _RUNNERS.get(program, ())
    length = 3 if program in _TWO_WORDS or is_group else 2
    fits = len(words) >= length and all(_SUBCOMMAND.fullmatch(word) for word in words[1:length])
    return words[:length] if fits else ()
