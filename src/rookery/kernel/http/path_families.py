"""The families of paths of the API, and the resources in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

FAMILIES: Mapping[str, str] = {
    "/api/v1": "Running the server: tool servers and their tools, keys, workspaces, webhooks, events and the audit log.",
    "/api/agent": "What an agent works with: plans, tasks, sessions, templates, tools, notifications and content.",
    "/v1": "Memory and scoring, and the paths of /api/agent once more, in short.",
}
"""The prefix of each family, and what is in it."""


def list_resources(family: str, paths: Iterable[str]) -> Sequence[str]:
    """Return the first segments that follow the prefix of *family* in *paths*, sorted."""
    segments = {path.removeprefix(f"{family}/").partition("/")[0] for path in paths if path.startswith(f"{family}/")}
    return sorted(segment for segment in segments if not segment.startswith("{"))
