"""The network, as far as children and webfetch may reach it: which addresses, by which names, through which proxy."""
