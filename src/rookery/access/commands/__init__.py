"""The operator's commands of access: `workspace`, `keys`, `agent-keys`, `audit` (D-04)."""
