"""Commands for agent work: `rookery templates` (D-63)."""
