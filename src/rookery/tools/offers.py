"""What of a server's offer is kept, and for whom. Pure."""

from __future__ import annotations

from dataclasses import replace

from rookery.tools.models import Isolation, Offer, Server

MOST_OF_A_KIND = 5000
"""Tools, resources, templates, prompts of one server; each costs everybody: memory here, and a look at its words by the embedder."""


def is_each_its_own(server: Server) -> bool:
    """
    Tell whether several workspaces use *server* without sharing a session.

    What its resources are called there, notes or documents, is then each workspace's own business.
    """
    return server.owner is None and server.isolation is not Isolation.SHARED and server.kind != "builtin"


def bounded(offer: Offer) -> Offer:
    """Return as much of *offer* as is kept."""
    return replace(
        offer,
        tools=offer.tools[:MOST_OF_A_KIND],
        resources=offer.resources[:MOST_OF_A_KIND],
        templates=offer.templates[:MOST_OF_A_KIND],
        prompts=offer.prompts[:MOST_OF_A_KIND],
    )


def passed_over(offer: Offer) -> int:
    """Return how many things of *offer* are too many."""
    return sum(max(len(each) - MOST_OF_A_KIND, 0) for each in (offer.tools, offer.resources, offer.templates, offer.prompts))
