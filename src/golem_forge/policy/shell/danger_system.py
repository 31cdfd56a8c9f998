"""Dangers to the machine and its owner: privileges, power, persistence, hijacked variables, other agents."""

from __future__ import annotations

import re

from .danger_git import git_hijack
from .danger_model import Context
from .danger_paths import writes_startup_file
from .lenient import FoundCommand
from .names import names
from .options import plain_operands

_PRIVILEGED = names("sudo sudoedit su doas pkexec run0")
_POWER = names("shutdown reboot halt poweroff")
_POWER_UNITS = names("poweroff reboot halt kexec suspend hibernate hybrid-sleep soft-reboot")
_SCHEDULERS = names("crontab at batch update-rc.d chkconfig")
_ENABLING = names("enable reenable link preset load bootstrap")

_HIJACKED = re.compile(r"(LD_|DYLD_|GIT_|BASH_FUNC_)\w+|PATH|BASH_ENV|ENV|IFS|PROMPT_COMMAND|SHELLOPTS|PS4")
_DECLARING = names("export declare typeset readonly local setenv")
_SSH_COMMANDS = ("proxycommand", "localcommand", "permitlocalcommand", "knownhostscommand", "remotecommand")

_UNGUARDED = names(
    "--dangerously-skip-permissions --allow-dangerously-skip-permissions"
    " --dangerously-bypass-approvals-and-sandbox --dangerously-allow-all --yolo --full-auto --allow-all-tools"
    " --trust-all-tools"
)
_UNGUARDED_BY_AGENT = {
    "claude": names("bypassPermissions"),
    "codex": names("never danger-full-access"),
    "gemini": names("-y yolo"),
    "qwen": names("-y yolo"),
    "crush": names("-y"),
    "aider": names("--yes --yes-always"),
    "cursor-agent": names("-f --force"),
}
_FORGE = re.compile(r"forge|golem[-_]forge")


def privilege(command: FoundCommand, context: Context) -> bool:
    return command.program in _PRIVILEGED


def power(command: FoundCommand, context: Context) -> bool:
    operands = plain_operands(command.arguments)
    if command.program in _POWER:
        return True
    if command.program in ("init", "telinit"):
        return bool({"0", "6"} & set(operands))
    if command.program in ("systemctl", "loginctl"):
        return bool(_POWER_UNITS & set(operands))
    return any(redirect.target.endswith("/proc/sysrq-trigger") for redirect in command.redirects)


def persistence(command: FoundCommand, context: Context) -> bool:
    if command.program in _SCHEDULERS:
        return True
    if command.program in ("systemctl", "launchctl"):
        return bool(_ENABLING & set(plain_operands(command.arguments)))
    return writes_startup_file(command, context)


def env_hijack(command: FoundCommand, context: Context) -> bool:
    assigned = [name for name, _ in command.assignments]
    if command.program in _DECLARING:
        assigned += [re.split(r"\+?=", word)[0] for word in command.arguments if "=" in word]
    if any(_HIJACKED.fullmatch(name) for name in assigned):
        return True
    if command.program in ("ssh", "scp", "sftp"):
        words = [word.lower().removeprefix("-o").strip() for word in command.arguments]
        return any(word.startswith(_SSH_COMMANDS) for word in words)
    return git_hijack(command, context)


def self_invoke(command: FoundCommand, context: Context) -> bool:
    program, arguments = command.program, command.arguments
    if _FORGE.fullmatch(program):
        return True
    if program.startswith(("python", "pypy")) and "-m" in arguments:
        module = arguments[arguments.index("-m") + 1 :]
        return bool(module) and module[0].split(".")[0] == "golem_forge"
    if program in ("uvx", "pipx", "uv") and any(_FORGE.fullmatch(re.split("[=@<>]", w)[0]) for w in arguments):
        return True
    flags = {piece for word in arguments for piece in (word, word.partition("=")[0], word.partition("=")[2])}
    return bool(flags & _UNGUARDED) or bool(flags & _UNGUARDED_BY_AGENT.get(program, frozenset()))
