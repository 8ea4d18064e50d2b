"""Short memories generated from word lists, the same for the same seed, similar to memories of agents."""

from __future__ import annotations

import random
from collections.abc import Iterator

_SUBJECTS = (
    "the billing service|the login page|our deploy pipeline|the search index|the mobile app|the data warehouse|the rate limiter|the "
    "webhook worker|the admin console|the export job|the payment gateway|the session store|the feature flag client|the mail queue"
).split("|")
_VERBS = "uses|depends on|replaced|fails with|is slower than|was moved to|must not call|retries|caches|logs to|is tested by|owns".split("|")
_OBJECTS = (
    "PostgreSQL 16|Redis streams|the legacy SOAP endpoint|a nightly cron job|feature toggles|the staging cluster|signed cookies|gRPC|a "
    "materialised view|the vendor's SDK|an S3 bucket|optimistic locking|the audit table|a circuit breaker|blue-green releases"
).split("|")
_WHY = (
    "because of the outage in March|after the security review|since version 4.2|until the migration is done|as Maria asked|to keep "
    "latency under 200 ms|when the tenant is in Europe|unless the flag is off|for customers on the old plan|on weekdays only"
).split("|")
TYPES = ("observation", "decision", "context", "convention", "architecture", "procedure")


def texts(seed: int = 8400) -> Iterator[str]:
    """Yield texts of about 12 to 20 words without end; a number makes each unique."""
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        first = f"{chance.choice(_SUBJECTS)} {chance.choice(_VERBS)} {chance.choice(_OBJECTS)} {chance.choice(_WHY)}"
        yield f"{first[0].upper()}{first[1:]}; ticket {number} tracks {chance.choice(_SUBJECTS)}."


def questions(seed: int = 1) -> Iterator[str]:
    """Yield questions about `texts` without end; a number makes each unique, so that none is cached."""
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        yield f"What does {chance.choice(_SUBJECTS)} have to do with {chance.choice(_OBJECTS)}, case {number}?"
