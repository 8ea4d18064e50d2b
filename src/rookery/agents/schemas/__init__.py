"""Request and response models of agent work."""
