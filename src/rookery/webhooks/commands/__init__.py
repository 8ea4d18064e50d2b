"""The operator's commands of webhooks (D-04)."""
