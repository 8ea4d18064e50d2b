"""`rookery connect`: the configuration files of MCP clients and coding agents, their keys, and the check of both (D-35, D-92)."""
