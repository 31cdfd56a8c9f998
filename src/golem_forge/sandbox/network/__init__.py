"""The network, as far as children and webfetch may reach it: which addresses, by which names, through which proxy.

`lazy_connection` and `lazy_loopback` have the names of `connection` and `loopback` and load them when the first of them
is used: tools are listed without them.
"""

from typing import TYPE_CHECKING

from golem_forge.core.lazy_module import LazyModule

__all__ = ["lazy_connection", "lazy_loopback"]

if TYPE_CHECKING:
    from golem_forge.sandbox.network import connection as lazy_connection
    from golem_forge.sandbox.network import loopback as lazy_loopback
else:
    lazy_connection = LazyModule("golem_forge.sandbox.network.connection")
    lazy_loopback = LazyModule("golem_forge.sandbox.network.loopback")
