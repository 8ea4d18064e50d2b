"""What of a server's offer is kept, and for whom. Pure."""

from __future__ import annotations

from dataclasses import replace

from rookery.tools.models import Server, ServerFeatures, SessionIsolation

MAX_FEATURES_PER_KIND = 5000
"""Tools, resources, templates, prompts of one server; each costs everybody: memory here, and a look at its words by the embedder."""


def has_workspace_sessions(server: Server) -> bool:
    """
    Tell whether several workspaces use *server* without sharing a session.

    What its resources are called there, notes or documents, is then each workspace's own business.
    """
    return server.owner is None and server.isolation is not SessionIsolation.SHARED and server.kind != "builtin"


def limit_features(features: ServerFeatures) -> ServerFeatures:
    """Return as much of *features* as is kept."""
    return replace(
        features,
        tools=features.tools[:MAX_FEATURES_PER_KIND],
        resources=features.resources[:MAX_FEATURES_PER_KIND],
        templates=features.templates[:MAX_FEATURES_PER_KIND],
        prompts=features.prompts[:MAX_FEATURES_PER_KIND],
    )


def count_dropped_features(features: ServerFeatures) -> int:
    """Return how many things of *features* are too many."""
    return sum(
        max(len(each) - MAX_FEATURES_PER_KIND, 0) for each in (features.tools, features.resources, features.templates, features.prompts)
    )
