"""What git finds inside the walls as its signing program: hands what is to be signed to Forge, and gives git the
signature in the form it expects. Has no key and knows none. Standard library only.

Git calls it as gpg (`--status-fd=2 -bsau KEY`, the buffer on standard input) or as ssh-keygen (`-Y sign -n git -f KEY
FILE`, the signature goes to FILE.sig).
"""

import base64
import json
import os
import socket
import sys

MOST = 1 << 20


def main(words: "list[str]") -> int:
    by_ssh = words[:2] == ["-Y", "sign"]
    if not by_ssh and not any(word.startswith("-bs") for word in words):
        print("forge: only signing is done here; signatures are verified outside the walls.", file=sys.stderr)
        return 1
    if by_ssh:
        with open(words[-1], "rb") as file:
            data = file.read(MOST + 1)
    else:
        data = sys.stdin.buffer.read(MOST + 1)
    answer = ask({"token": os.environ.get("FORGE_SIGNING_TOKEN", ""), "data": base64.b64encode(data).decode()})
    if "signature" not in answer:
        print(f"forge: not signed: {answer.get('error', 'Forge did not answer')}", file=sys.stderr)
        return 1
    if by_ssh:
        with open(words[-1] + ".sig", "w") as file:
            file.write(answer["signature"])
    else:
        print("[GNUPG:] SIG_CREATED D", file=sys.stderr)
        sys.stdout.write(answer["signature"])
    return 0


def ask(request: "dict[str, str]") -> "dict[str, str]":
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(os.environ.get("FORGE_SIGNING_SOCKET", ""))
            wire.sendall(json.dumps(request).encode() + b"\n")
            with wire.makefile("rb") as said:
                answer = json.loads(said.readline())
        return answer if isinstance(answer, dict) else {}
    except (OSError, ValueError) as error:
        return {"error": f"Forge cannot be reached ({type(error).__name__})"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
