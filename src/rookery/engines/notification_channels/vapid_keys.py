"""The VAPID key of the installation: the one in the settings, or the stored one."""

from __future__ import annotations

from rookery.engines.notification_channels.vapid import VapidKey
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.secret import Secret
from rookery.notifications.ports import InstallationKeys


class VapidKeys:
    """Loads the key at first use."""

    def __init__(self, configured: Secret | None, stored: InstallationKeys) -> None:
        self._configured = configured
        self._stored = stored
        self._key: VapidKey | None = None

    async def load(self) -> VapidKey:
        """
        Return the key.

        Raises:
            EngineUnavailable: The stored key cannot be decrypted.
            WrongSettings: The configured key is invalid.
        """
        if self._key is None:
            if self._configured is not None:
                self._key = parse_configured_key(self._configured)
            else:
                try:
                    self._key = VapidKey.parse(await self._stored.get_vapid_key())
                except ValueError as error:
                    raise EngineUnavailable("secrets", "the stored VAPID key is damaged") from error
        return self._key


def parse_configured_key(text: Secret) -> VapidKey:
    """Return the key of the setting. Raises `WrongSettings`."""
    try:
        return VapidKey.parse(text)
    except ValueError as error:
        raise WrongSettings(f"ROOKERY_VAPID_PRIVATE_KEY: {error}") from None
