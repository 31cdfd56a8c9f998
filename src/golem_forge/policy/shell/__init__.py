"""Shell commands: two analysers that never swap roles.

The strict side (`parse_strict`, `prove`, `matches_strict`) only proves harmlessness and calls what it cannot read
opaque; the lenient side (`find_commands`, `find_dangers`, `matches_lenient`) only finds danger and reads anything.
Everything is loaded when first used.
"""
