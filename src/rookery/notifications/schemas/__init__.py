"""Request and response models of notifications, and the formats of imports and exports."""
