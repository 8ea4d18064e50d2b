"""Webhooks: endpoints, events, and signed deliveries with retries (spec 2.4, 6.2; D-80, D-81)."""
