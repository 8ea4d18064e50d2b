"""The recorded answers of real services, with the outcome that each has to have."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from rookery.notifications.messages import SendResult

RECORD = Path(__file__).parent / "recorded.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """
    One answer of a real service.

    Attributes:
        service: Its name and version.
        source: How the answer was had: `make notification-services`, or where it is described.
        channel: email, ntfy or webpush.
        when: The command of SMTP, or what the request was.
        status: The status of HTTP; 0: SMTP, whose code is in *answer*.
        answer: The line of SMTP, or the body.
        outcome: The outcome of the message.
        concerns_host: The host waits, and no attempt counts.
    """

    service: str
    source: str
    channel: str
    when: str
    status: int = 0
    answer: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    outcome: str
    concerns_host: bool = False

    @property
    def expected(self) -> tuple[str, bool]:
        """The parts of a result that a campaign depends on."""
        return self.outcome, self.concerns_host


def get_effect(result: SendResult) -> tuple[str, bool]:
    """Return the same parts of *result*."""
    return result.outcome.value, result.concerns_host


def load_exchanges() -> list[Exchange]:
    """Return the record."""
    return [Exchange(**cast("dict[str, object]", entry)) for entry in json.loads(RECORD.read_text(encoding="utf-8"))]  # pyright: ignore[reportArgumentType] - the record has these fields


def save_exchanges(exchanges: list[Exchange]) -> None:
    """Write the record."""
    RECORD.write_text(json.dumps([asdict(exchange) for exchange in exchanges], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
