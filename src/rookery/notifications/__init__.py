"""Notifications: subscribers, campaigns, and a delivery for each subscriber and channel."""
