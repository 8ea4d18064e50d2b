"""
The guard of requests to users' URLs: webhooks, push, ntfy, tool servers that workspaces add.

`EgressGuard` checks an address when a user sets it and again at each connection. The connection goes to the checked address, so a
later change of the DNS record has no effect. `transport` makes the connection. It is a separate module because it imports an HTTP
client. `http_client` posts over such connections. `service_client` is not guarded: its addresses are those of operators.
"""

from rookery.kernel.egress.guard import AddressRefused, EgressGuard, HostNotResolved, Resolve

__all__ = ["AddressRefused", "EgressGuard", "HostNotResolved", "Resolve"]
