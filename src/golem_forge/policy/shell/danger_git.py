"""Dangers of git: losing history or work, and options that make it run other programs."""

from __future__ import annotations

from .danger_model import Context
from .lenient import FoundCommand
from .names import names
from .options import has_long, leading_options, plain_operands, short_letters

_VALUED = names("--git-dir --work-tree --namespace --super-prefix --config-env --exec-path --attr-source")
_EVERYTHING = names(". ./ :/ * :(top)")


def git_parts(command: FoundCommand) -> tuple[str, tuple[str, ...]]:
    """The subcommand and its arguments; empty if this is not git or has none."""
    if command.program != "git":
        return "", ()
    # `--exec-path` takes a value only after `=`.
    _, index = leading_options(command.arguments, "Cc", _VALUED - {"--exec-path"})
    rest = command.arguments[index:]
    return (rest[0], rest[1:]) if rest else ("", ())


def git_rewrite(command: FoundCommand, context: Context) -> bool:
    subcommand, arguments = git_parts(command)
    letters = short_letters(arguments)
    operands = plain_operands(arguments)
    forced = "f" in letters or has_long(arguments, "--force")
    match subcommand:
        case "push":
            leases = has_long(arguments, "--force-with-lease") or has_long(arguments, "--force-if-includes")
            removes = "d" in letters or any(has_long(arguments, flag) for flag in ("--mirror", "--delete", "--prune"))
            return forced or leases or removes or any(word[:1] in ("+", ":") for word in operands)
        case "reset":
            return has_long(arguments, "--hard")
        case "clean":
            return forced
        case "branch":
            return "D" in letters or (forced and ("d" in letters or has_long(arguments, "--delete")))
        case "checkout" | "restore" | "switch":
            discards = forced or has_long(arguments, "--discard-changes", 2)
            return (discards and subcommand != "restore") or any(word in _EVERYTHING for word in operands)
        case "stash":
            return operands[:1] in (("drop",), ("clear",))
        case "reflog":
            return operands[:1] in (("expire",), ("delete",))
        case "filter-branch" | "filter-repo":
            return True
    return False


def git_hijack(command: FoundCommand, context: Context) -> bool:
    """Options by which a repository or an argument chooses a program to run."""
    if command.program != "git":
        return False
    options, _ = leading_options(command.arguments, "Cc", _VALUED - {"--exec-path"})
    if any(option.flag in ("-c", "--config-env", "--exec-path") for option in options):
        return True
    subcommand, arguments = git_parts(command)
    if has_long(arguments, "--upload-pack", 3) or has_long(arguments, "--receive-pack", 5):
        return True
    if subcommand == "clone" and (short_letters(arguments) & {"c", "u"} or has_long(arguments, "--config", 4)):
        return True
    return any(word.startswith("ext::") for word in arguments)
