"""Dangers of the network: running what was downloaded or decoded, and sending files away."""

from __future__ import annotations

import re

from .danger_model import Context
from .lenient import FoundCommand
from .names import names
from .options import all_options, has_long, is_long, plain_operands, short_letters
from .wrappers import SHELLS, reads_script_from_input

_DOWNLOADERS = names(
    "curl wget wget2 fetch aria2c http https xh lwp-request lwp-download GET lynx links w3m nc ncat netcat"
    " socat telnet ftp tftp ssh dig"
)
_DECODERS = names("uudecode zcat gunzip bunzip2 bzcat unxz xzcat zstdcat unzstd rev tr")
_DECODERS_WITH_D = names("base64 base32 basenc gzip bzip2 xz zstd lz4 openssl gpg gpg2")
_INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|tclsh|Rscript|osascript|pwsh)[0-9.]*"
)
_EVALUATORS = names("eval . source")
_RUNS_INPUT = re.compile(r"\b(exec|eval|system|compile)\b")
_NET_DEVICE = re.compile(r"/+dev/+(tcp|udp)/")
_NET_REDIRECTION = re.compile(r"/dev/(?:tcp|udp)(?:/(?!\.{0,2}(?:/|$))[^/]+){2}")

_CURL_VALUED = "AbcCdDeEFHhKmoPQrtTuUwxXyYz"
_CURL_LONG = names(
    "--data --data-ascii --data-binary --data-raw --data-urlencode --json --form --form-string --upload-file"
    " --header --output --request --user --url --user-agent --cookie --referer --max-time --proxy"
)
_CURL_DATA = names("--data --data-ascii --data-binary --data-urlencode --json")
_SENDERS = names("scp sftp nc ncat netcat socat ftp tftp")


def is_source(command: FoundCommand) -> bool:
    """Does its output come from the network or out of an encoding?"""
    program, arguments = command.program, command.arguments
    if program in _DOWNLOADERS or program in _DECODERS:
        return True
    if program in _DECODERS_WITH_D:
        decoding = short_letters(arguments) & {"d", "D"} or "s_client" in arguments
        long = ("--decode", "--decompress", "--uncompress", "--decrypt")
        return bool(decoding) or any(has_long(arguments, flag) for flag in long)
    if program == "xxd":
        return "r" in short_letters(arguments)
    return any(
        redirect.operator in ("<", "<>") and _NET_DEVICE.match(redirect.target) for redirect in command.redirects
    )


def is_network_redirection(target: str) -> bool:
    """`/dev/tcp/HOST/PORT`, which bash opens as a connection where it redirects. Another spelling is only a path."""
    return _NET_REDIRECTION.fullmatch(target) is not None


def is_interpreter(program: str) -> bool:
    return _INTERPRETER.fullmatch(program) is not None


def pipe_to_shell(command: FoundCommand, context: Context) -> bool:
    program, arguments = command.program, command.arguments
    runs_code = program in SHELLS or program in _EVALUATORS or is_interpreter(program)
    if command.words and command.words[0].startswith("$()"):
        runs_code = True
    if runs_code and (context.has_source(command.inner) or is_source(command)):
        return True
    if not context.has_source(command.fed):
        return False
    if program == "parallel":
        return not plain_operands(arguments)
    if runs_code and {"xargs", "parallel"} & set(command.via):
        return True
    return program == "eval" or reads_script_from_input(program, arguments) or _interprets_input(command)


def _interprets_input(command: FoundCommand) -> bool:
    if not is_interpreter(command.program):
        return False
    arguments = command.arguments
    first = next((word for word in arguments if not word.startswith("-") or word == "-"), "-")
    inline = any(re.match(r"-[A-Za-z]*[cemnpr]|--eval|--print", word) for word in arguments)
    if inline:
        return any(_RUNS_INPUT.search(word) for word in arguments)
    return first in ("-", "/dev/stdin") or (command.program in ("deno", "bun") and "-" in arguments)


def upload(command: FoundCommand, context: Context) -> bool:
    program, arguments = command.program, command.arguments
    if program in _SENDERS:
        return True
    if program == "rsync":
        operands = plain_operands(arguments)
        return bool(operands) and (operands[-1].startswith("rsync://") or ":" in operands[-1].split("/")[0])
    if program == "wget":
        return has_long(arguments, "--post-file", 6) or has_long(arguments, "--body-file", 6)
    if program == "curl":
        return _curl_uploads(arguments)
    if program in ("http", "https", "xh"):
        return any("@" in word and not word.startswith(("http", "-")) for word in arguments)
    return any(
        redirect.operator not in ("<", "<<", "<<-", "<<<") and _NET_DEVICE.match(redirect.target)
        for redirect in command.redirects
    )


def _curl_uploads(arguments: tuple[str, ...]) -> bool:
    options, _ = all_options(arguments, _CURL_VALUED, _CURL_LONG)
    for option in options:
        flag, value = option.flag, option.value or ""
        if flag in ("-T", "-F") or is_long(flag, "--upload-file", 2) or is_long(flag, "--form", 2):
            return True
        if is_long(flag, "--data-urlencode", 7) and re.match(r"[^=]*@", value):
            return True
        if value.startswith("@") and (flag == "-d" or any(is_long(flag, name, 3) for name in _CURL_DATA)):
            return True
    return False
