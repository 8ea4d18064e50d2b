"""`rookery connect`: the configuration files of MCP clients and coding agents, their keys, and the check of both."""
