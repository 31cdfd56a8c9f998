"""Protects the user's git repositories from what commands do to them, and reads git's files as git does.

`shadow` and `exchange` (commands get a private copy of `.git`, only data comes back), `directory`, `index` and
`formats` (git's files), `repository` (what git needs from outside a zone), `nested` and `rules` (repositories that
commands made)."""
