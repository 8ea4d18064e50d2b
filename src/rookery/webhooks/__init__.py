"""Tell the outside what happened: endpoints, events, and deliveries that are signed and tried again (spec 2.4, 6.2; D-80, D-81)."""
