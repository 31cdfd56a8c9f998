"""Protects the user's git repositories from what commands do to them, and lets git itself judge git's files.

`shadow` and `exchange` (commands get a private copy of `.git`, only data comes back), `transport` (git packs, receives
and verifies it), `directory`, `index` and `formats` (git's files), `repository` (where it is, and what git needs from
outside a zone), `nested` and `rules` (repositories that commands made)."""
