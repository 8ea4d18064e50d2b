"""
Cost of the guard per request: `python -m benchmarks.guard`.

Medians of interleaved rounds, in microseconds of this process's CPU time; a round has 500 calls. Run it on an
otherwise idle machine.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sqlalchemy import create_engine

from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.audit_log import AuditLog
from rookery.access.guard import Guard
from rookery.access.hashing import Bcrypt
from rookery.access.key_cache import VerifiedKeyCache
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import SYSTEM_ACTOR, Tier
from rookery.access.rate_limits import HOUR_US, RateLimiter
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import Workspaces
from rookery.engines.counters import open as open_counter
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import metadata, open_database
from rookery.kernel.engine_breakers import EngineBreakers

ROUNDS = 15
CALLS = 500  # 15 rounds are less than the limit of a pro key, 10,000 an hour
ADDRESS = "127.0.0.1"


def scope(token: str) -> dict[str, object]:
    """Return a request as a typical client sends it."""
    headers = [
        (b"host", b"127.0.0.1:8400"),
        (b"user-agent", b"python-httpx2/2.16"),
        (b"accept", b"*/*"),
        (b"accept-encoding", b"gzip, deflate, br"),
        (b"connection", b"keep-alive"),
        (b"content-type", b"application/json"),
        (b"content-length", b"120"),
        (b"authorization", b"Bearer " + token.encode()),
    ]
    return {"type": "http", "headers": headers, "client": (ADDRESS, 50000), "state": {"request_id": "req_benchmark"}}


async def main() -> None:
    """Measure, and print one line per figure."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        engine = create_engine(f"sqlite:///{data_dir / 'records.db'}")
        metadata.create_all(engine)
        engine.dispose()
        await measure(data_dir)


async def measure(data_dir: Path) -> None:
    """Open everything in *data_dir* and run the rounds."""
    db = open_database("embedded:", data_dir=data_dir)
    bcrypt, counter = Bcrypt(cost=4), open_counter("embedded:", data_dir=data_dir)
    usage, audit = UsageLog(db, utc_now), AuditLog(db, utc_now)
    proofs = VerifiedKeyCache(db, bcrypt)
    guard = Guard(
        db=db, key_cache=proofs, limiter=RateLimiter(counter, breaker=EngineBreakers(Settings()).counters), usage=usage, clock=utc_now
    )
    workspace = await Workspaces(db, audit, utc_now).create("benchmark", by=SYSTEM_ACTOR)
    api_keys, agent_keys = ApiKeys(db, bcrypt, usage, audit, utc_now), AgentKeys(db, usage, audit, utc_now)
    enterprise = (
        await api_keys.create(workspace.id, NewApiKey(name="a", scopes=("*",), rate_limit_tier=Tier.ENTERPRISE), by=SYSTEM_ACTOR)
    ).plaintext.reveal()
    pro = (await api_keys.create(workspace.id, NewApiKey(name="b", scopes=("*",)), by=SYSTEM_ACTOR)).plaintext.reveal()
    agent = (
        await agent_keys.create(workspace.id, NewAgentKey(name="c", permissions=("brain:read",), rate_limit=1_000_000), by=SYSTEM_ACTOR)
    ).plaintext.reveal()
    token = enterprise.encode()

    async def admitted(presented: str) -> None:
        admission = await guard.admit(scope(presented), required_scope="brain:read")
        admission.record(method="POST", route="/v1/brain/recall", status=200, duration_ms=1.0)

    cases: dict[str, Callable[[], Awaitable[object]]] = {
        "warm check of an API key": lambda: proofs.find_row(token, ADDRESS),
        "counter spend": lambda: counter.spend("benchmark", limit=1_000_000_000, window_us=HOUR_US, now_us=1_000_000),
        "admit and record, enterprise key": lambda: admitted(enterprise),
        "admit and record, pro key": lambda: admitted(pro),
        "admit and record, agent key": lambda: admitted(agent),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, call in cases.items():
            started = time.process_time()
            for _ in range(CALLS):
                await call()
            times[name].append((time.process_time() - started) / CALLS * 1_000_000)
            await usage.flush()
    for name, figures in times.items():
        print(f"{name:36} {statistics.median(figures):6.1f} µs   (best {min(figures):.1f})")
    await usage.close()
    await counter.close()
    bcrypt.close()
    await db.close()


if __name__ == "__main__":
    asyncio.run(main())
