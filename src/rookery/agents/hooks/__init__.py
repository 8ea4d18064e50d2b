"""The hooks of connected coding agents."""
