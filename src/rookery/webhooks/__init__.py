"""Webhooks: endpoints, events, and signed deliveries with retries."""
