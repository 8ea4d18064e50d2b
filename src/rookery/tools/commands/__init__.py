"""The operator's commands of tool servers: `servers`, `tools` and `connect` (D-04)."""
