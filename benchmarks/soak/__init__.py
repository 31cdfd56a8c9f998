"""The soak: sessions of several people, while everything fails. `make soak`."""
