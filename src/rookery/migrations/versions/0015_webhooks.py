"""Who is told of what, and how that went (D-80, D-81)."""

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Make the tables."""
