"""The hooks of connected coding agents (D-93)."""
