"""What a new tool starts from, one text a language. Constants: no name, description or argument ever becomes code.

Each reads one example flag and FORGE_WORKSPACE, prints a result and runs as it is.
"""

from __future__ import annotations

from typing import Final

PYTHON: Final = '''\
"""Replace this with what the tool does. Only the standard library and files of this folder can be imported."""

import argparse
import os


def main() -> None:
    parser = argparse.ArgumentParser()
    # One flag for every parameter in tool.yaml: a call with {"example": "text"} arrives as --example=text.
    parser.add_argument("--example", default="", help="an example parameter")
    given = parser.parse_args()

    # The worker's default zone, and the current directory of every run.
    workspace = os.environ.get("FORGE_WORKSPACE", "")

    # What is printed is the result. Exit with another code than 0 to say that it failed.
    print(f"example: {given.example}")
    print(f"workspace: {workspace}")


if __name__ == "__main__":
    main()
'''

SHELL: Final = """\
#!/bin/sh
# Replace this with what the tool does.
set -eu

# One flag for every parameter in tool.yaml: a call with {"example": "text"} arrives as --example=text.
example=""
for argument in "$@"; do
  case "$argument" in
    --example=*) example="${argument#--example=}" ;;
    *)
      printf 'unknown argument: %s\\n' "$argument" >&2
      exit 2
      ;;
  esac
done

# The worker's default zone, and the current directory of every run.
workspace="${FORGE_WORKSPACE:-}"

# What is printed is the result. Exit with another code than 0 to say that it failed.
printf 'example: %s\\n' "$example"
printf 'workspace: %s\\n' "$workspace"
"""

GO: Final = """\
// Replace this with what the tool does.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	// One flag for every parameter in tool.yaml: a call with {"example": "text"} arrives as --example=text.
	example := flag.String("example", "", "an example parameter")
	flag.Parse()

	// The worker's default zone, and the current directory of every run.
	workspace := os.Getenv("FORGE_WORKSPACE")

	// What is printed is the result. Exit with another code than 0 to say that it failed.
	fmt.Printf("example: %s\\n", *example)
	fmt.Printf("workspace: %s\\n", workspace)
}
"""
