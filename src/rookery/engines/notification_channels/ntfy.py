"""The ntfy channel: messages published as JSON to the server of each topic."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import orjson

from rookery.engines.notification_channels.http_outcomes import evaluate_failure, evaluate_response
from rookery.kernel.clock import Clock
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.http_client import REQUEST_TIMEOUT_S, GuardedHttpClient, PostFailed, PostResponse
from rookery.kernel.safe_texts import redact
from rookery.notifications.messages import NotificationMessage, SendOutcome, SendResult
from rookery.notifications.ntfy_address import NtfyAddress, parse_ntfy_address
from rookery.notifications.ports import NTFY_MAX_BODY_BYTES, NTFY_MAX_TEXT_BYTES, BeginSend, begin_freely, shorten

_MAX_DETAIL_CHARS = 200
_DAILY_LIMITS = frozenset({42902, 42905, 42908})
"""The codes of ntfy's daily limits of mails, bandwidth and messages (`server/errors.go`). The others are limits of requests."""

_RESET_MARGIN_S = 30.0


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
        body = _render_message(message, address)
        if body is None:
            return SendResult(outcome=SendOutcome.REJECTED, reason="The title and the URL are too long for ntfy.")
        try:
            response = await self._http.post(address.server_url, headers, body, begin)
        except PostFailed as failure:
            return evaluate_failure(failure)
        answer = _parse_answer(response)
        if response.status == 200 and "id" not in answer:
            return SendResult(outcome=SendOutcome.REJECTED, status=200, reason="The server does not answer as an ntfy server does.")
        now = self._clock()
        result = evaluate_response(response, now, service="The ntfy server", detail=_describe_error(answer))
        if answer.get("code") in _DAILY_LIMITS:
            result = replace(result, resets_in_s=_count_seconds_to_midnight(now) + _RESET_MARGIN_S)
        provider_id = answer.get("id") if result.outcome is SendOutcome.SENT else None
        if not isinstance(provider_id, str):
            return result
        return SendResult(outcome=result.outcome, status=result.status, provider_id=provider_id[:_MAX_DETAIL_CHARS])

    async def check(self) -> None:
        """Do nothing: topics have no configuration in common."""

    async def close(self) -> None:
        await self._http.close()


def _render_message(message: NotificationMessage, address: NtfyAddress) -> bytes | None:
    """
    Return the request; None if the title and the URL are too long. A text that is too long ends with an ellipsis.

    An empty text would be shown as "triggered", so the title takes its place.
    """
    title, text = (message.title, message.body) if message.body.strip() else ("", message.title)
    fields: dict[str, object] = {"topic": address.topic}
    if message.url is not None:
        fields["click"] = message.url
    if address.priority is not None:
        fields["priority"] = address.priority
    if message.unsubscribe_url is not None:
        fields["actions"] = [{"action": "view", "label": "Unsubscribe", "url": message.unsubscribe_url}]

    def encode(text: str) -> bytes:
        return orjson.dumps({**fields, "title": title, "message": text} if title else {**fields, "message": text})

    def fits(text: str) -> bool:
        return len(text.encode()) <= NTFY_MAX_TEXT_BYTES and len(encode(text)) <= NTFY_MAX_BODY_BYTES

    shortened = shorten(text, fits)
    return None if shortened is None else encode(shortened)


def _count_seconds_to_midnight(now: datetime) -> float:
    """Return the seconds until midnight UTC, when ntfy's daily limits begin again."""
    return (now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1) - now).total_seconds()


def _parse_answer(response: PostResponse) -> dict[str, object]:
    try:
        answer: object = orjson.loads(response.excerpt)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, object]", answer) if isinstance(answer, dict) else {}


def _describe_error(answer: dict[str, object]) -> str:
    error = answer.get("error")
    return " ".join(redact(error)[:_MAX_DETAIL_CHARS].split()) if isinstance(error, str) else ""
