"""The side of connected coding agents that runs on a developer's machine. It imports nothing of the server, so that hooks start fast."""
