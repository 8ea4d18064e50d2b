"""Work plans, agent sessions and plan templates (spec 1, 4.2, 5.3)."""
