"""The command line of webhooks (D-04)."""
