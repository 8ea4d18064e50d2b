"""
Where requests to users' addresses may go (D-82): webhooks, push, ntfy, tool servers that workspaces add.

`EgressGuard` judges an address when it is given to us and again at each connection, which then goes to what was judged: a name
that means another address a second later changes nothing. `transport` has that connection, apart, since it loads an HTTP client.
"""

from rookery.kernel.egress.guard import AddressRefused, EgressGuard, Resolve

__all__ = ["AddressRefused", "EgressGuard", "Resolve"]
