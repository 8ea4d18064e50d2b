"""The ntfy channel: messages published as JSON to the server of each topic."""

from __future__ import annotations

from typing import cast

import orjson

from rookery.engines.notification_channels.http_outcomes import evaluate_failure, evaluate_response
from rookery.kernel.clock import Clock
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.http_client import REQUEST_TIMEOUT_S, GuardedHttpClient, PostFailed, PostResponse
from rookery.kernel.redaction import redact
from rookery.notifications.messages import NotificationMessage, SendOutcome, SendResult
from rookery.notifications.ntfy_address import NtfyAddress, parse_ntfy_address
from rookery.notifications.ports import BeginSend, begin_freely

_MAX_DETAIL_CHARS = 200


class NtfyChannel:
    """Publishes messages to topics of any ntfy server that *egress* allows."""

    def __init__(self, egress: EgressGuard, clock: Clock, *, max_concurrency: int, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.max_concurrency = max_concurrency
        self._clock = clock
        self._http = GuardedHttpClient(egress, timeout_s=timeout_s)

    async def send(self, message: NotificationMessage, begin: BeginSend = begin_freely) -> SendResult:
        try:
            address = parse_ntfy_address(message.target.address)
        except ValueError as error:
            return SendResult(outcome=SendOutcome.REJECTED, reason=f"The address {error}.")
        headers = {"Content-Type": "application/json"}
        if address.authorization is not None:
            headers["Authorization"] = address.authorization.reveal()
        try:
            response = await self._http.post(address.server_url, headers, _render_message(message, address), begin)
        except PostFailed as failure:
            return evaluate_failure(failure)
        answer = _parse_answer(response)
        if response.status == 200 and "id" not in answer:
            return SendResult(outcome=SendOutcome.REJECTED, status=200, reason="The server does not answer as an ntfy server does.")
        result = evaluate_response(response, self._clock(), service="The ntfy server", detail=_describe_error(answer))
        provider_id = answer.get("id") if result.outcome is SendOutcome.SENT else None
        if not isinstance(provider_id, str):
            return result
        return SendResult(outcome=result.outcome, status=result.status, provider_id=provider_id[:_MAX_DETAIL_CHARS])

    async def check(self) -> None:
        """Do nothing: topics have no configuration in common."""

    async def close(self) -> None:
        await self._http.close()


def _render_message(message: NotificationMessage, address: NtfyAddress) -> bytes:
    fields: dict[str, object] = {"topic": address.topic, "title": message.title, "message": message.body}
    if message.url is not None:
        fields["click"] = message.url
    if address.priority is not None:
        fields["priority"] = address.priority
    if message.unsubscribe_url is not None:
        fields["actions"] = [{"action": "view", "label": "Unsubscribe", "url": message.unsubscribe_url}]
    return orjson.dumps(fields)


def _parse_answer(response: PostResponse) -> dict[str, object]:
    try:
        answer: object = orjson.loads(response.excerpt)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, object]", answer) if isinstance(answer, dict) else {}


def _describe_error(answer: dict[str, object]) -> str:
    error = answer.get("error")
    return " ".join(redact(error)[:_MAX_DETAIL_CHARS].split()) if isinstance(error, str) else ""
