"""Work plans, agent sessions and plan templates."""
