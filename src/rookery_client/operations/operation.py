"""
Operations of `client.operation`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations



from rookery_client.calls import Call
from rookery_client.generated import models
from rookery_client.sessions import AsyncSession, Session


class OperationOperations:
    """Operations of `client.operation`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def check_health(self) -> models.Liveness:
        """
        Return 200 while the process is up. No engine is contacted.
        """
        return self._session.send(Call(operation="check_health", method="GET", path="/healthz", result=models.Liveness))

    def check_readiness(self) -> models.Readiness:
        """
        Return the state of each engine. The status is 503 only if the record store is unavailable.
        """
        return self._session.send(Call(operation="check_readiness", method="GET", path="/readyz", result=models.Readiness))

    def check_installation(self) -> models.Doctor:
        """
        Run the checks of `rookery doctor` in this process. Each finding that is not `ok` names the next step.

        Requires the scope `platform:metrics`.
        """
        return self._session.send(Call(operation="check_installation", method="GET", path="/api/v1/doctor", result=models.Doctor))

    def get_start(self) -> models.Start:
        """
        Lead a browser to the console, and return JSON to any other client: what runs here, its status, and where to begin.

        Without the console, a browser gets a page with the same facts.

        No key is required. With a key, the response includes what the key may see.
        """
        return self._session.send(Call(operation="get_start", method="GET", path="/", result=models.Start))

    def get_metrics(self) -> str:
        """
        Return the metrics of this process in the Prometheus text format, or as OpenMetrics if `Accept` requests it.

        Requires the scope `platform:metrics`.
        """
        return self._session.send(Call(
            operation="get_metrics", method="GET", path="/metrics", result=str, reader="text", accept="text/plain",
        ))


class AsyncOperationOperations:
    """Operations of `client.operation`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def check_health(self) -> models.Liveness:
        """
        Return 200 while the process is up. No engine is contacted.
        """
        return await self._session.send(Call(operation="check_health", method="GET", path="/healthz", result=models.Liveness))

    async def check_readiness(self) -> models.Readiness:
        """
        Return the state of each engine. The status is 503 only if the record store is unavailable.
        """
        return await self._session.send(Call(operation="check_readiness", method="GET", path="/readyz", result=models.Readiness))

    async def check_installation(self) -> models.Doctor:
        """
        Run the checks of `rookery doctor` in this process. Each finding that is not `ok` names the next step.

        Requires the scope `platform:metrics`.
        """
        return await self._session.send(Call(operation="check_installation", method="GET", path="/api/v1/doctor", result=models.Doctor))

    async def get_start(self) -> models.Start:
        """
        Lead a browser to the console, and return JSON to any other client: what runs here, its status, and where to begin.

        Without the console, a browser gets a page with the same facts.

        No key is required. With a key, the response includes what the key may see.
        """
        return await self._session.send(Call(operation="get_start", method="GET", path="/", result=models.Start))

    async def get_metrics(self) -> str:
        """
        Return the metrics of this process in the Prometheus text format, or as OpenMetrics if `Accept` requests it.

        Requires the scope `platform:metrics`.
        """
        return await self._session.send(Call(
            operation="get_metrics", method="GET", path="/metrics", result=str, reader="text", accept="text/plain",
        ))
