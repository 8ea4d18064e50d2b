"""MCP servers behind one HTTP API: the catalogue, the sessions with upstreams, the calls."""
