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

    def check_health(self) -> dict[str, object]:
        """Check that the process is up."""
        return self._session.send(Call(operation="check_health", method="GET", path="/healthz", result=dict[str, object]))

    def check_readiness(self) -> dict[str, object]:
        """Check the engines."""
        return self._session.send(Call(operation="check_readiness", method="GET", path="/readyz", result=dict[str, object]))

    def check_installation(self) -> models.Doctor:
        """Examine the installation."""
        return self._session.send(Call(operation="check_installation", method="GET", path="/api/v1/doctor", result=models.Doctor))

    def get_start(self) -> models.Start:
        """Show version, health and links."""
        return self._session.send(Call(operation="get_start", method="GET", path="/", result=models.Start))

    def get_metrics(self) -> str:
        """Show metrics for Prometheus."""
        return self._session.send(Call(
            operation="get_metrics", method="GET", path="/metrics", result=str, reader="text", accept="text/plain",
        ))


class AsyncOperationOperations:
    """Operations of `client.operation`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def check_health(self) -> dict[str, object]:
        """Check that the process is up."""
        return await self._session.send(Call(operation="check_health", method="GET", path="/healthz", result=dict[str, object]))

    async def check_readiness(self) -> dict[str, object]:
        """Check the engines."""
        return await self._session.send(Call(operation="check_readiness", method="GET", path="/readyz", result=dict[str, object]))

    async def check_installation(self) -> models.Doctor:
        """Examine the installation."""
        return await self._session.send(Call(operation="check_installation", method="GET", path="/api/v1/doctor", result=models.Doctor))

    async def get_start(self) -> models.Start:
        """Show version, health and links."""
        return await self._session.send(Call(operation="get_start", method="GET", path="/", result=models.Start))

    async def get_metrics(self) -> str:
        """Show metrics for Prometheus."""
        return await self._session.send(Call(
            operation="get_metrics", method="GET", path="/metrics", result=str, reader="text", accept="text/plain",
        ))
