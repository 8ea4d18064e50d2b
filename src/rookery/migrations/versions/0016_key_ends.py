"""Keys whose end by time was announced (D-80: key.expired)."""

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Note it on both kinds."""
