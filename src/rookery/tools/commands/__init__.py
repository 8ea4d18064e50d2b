"""The operator's commands for tool servers: `servers`, `tools` and `connect` (D-04)."""
