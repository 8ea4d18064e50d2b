"""The shared parts of commands: options, output, and opening the platform. It imports no domain."""
