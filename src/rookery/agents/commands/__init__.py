"""The operator's commands of agent work: `templates` (D-63)."""
