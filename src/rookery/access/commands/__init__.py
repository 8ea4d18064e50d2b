"""The command line of access: `workspace`, `keys`, `agent-keys`, `audit` (D-04)."""
