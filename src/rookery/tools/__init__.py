"""MCP servers behind one HTTP API (spec 2.1, 3.1, 4.1): the catalogue, the sessions with upstreams, the calls."""
