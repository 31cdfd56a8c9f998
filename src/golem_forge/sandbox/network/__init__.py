"""The network, as far as children and webfetch may reach it: which addresses, by which names, through which proxy.

`lazy_addresses`, `lazy_loopback` and `lazy_port_forward` have the names of these modules, which load when one is used:
tools are listed without them.
"""

from typing import TYPE_CHECKING

from golem_forge.core.lazy_module import LazyModule

__all__ = ["lazy_addresses", "lazy_loopback", "lazy_port_forward"]

if TYPE_CHECKING:
    from golem_forge.sandbox.network import addresses as lazy_addresses
    from golem_forge.sandbox.network import loopback as lazy_loopback
    from golem_forge.sandbox.network import port_forward as lazy_port_forward
else:
    lazy_addresses = LazyModule("golem_forge.sandbox.network.addresses")
    lazy_loopback = LazyModule("golem_forge.sandbox.network.loopback")
    lazy_port_forward = LazyModule("golem_forge.sandbox.network.port_forward")
