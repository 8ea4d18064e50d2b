"""Plan templates (D-63): parsing, rendering and storage."""
