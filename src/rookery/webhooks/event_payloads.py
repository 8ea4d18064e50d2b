"""Payloads of the events of webhooks: the fields of the webhook's GET (D-80, D-81)."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx
from rookery.kernel.schema import to_json
from rookery.webhooks.schemas import serialize_endpoint
from rookery.webhooks.store import endpoints


def serialize_endpoint_event(tx: Tx, workspace_id: int, endpoint_id: str, *, clock: Clock) -> Mapping[str, object]:
    """Return the fields of an endpoint of the workspace; only its id if it no longer exists."""
    endpoint = endpoints.find(tx, workspace_id, endpoint_id)
    return {"id": endpoint_id} if endpoint is None else to_json(serialize_endpoint(endpoint, clock()))
