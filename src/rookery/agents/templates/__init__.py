"""Templates of plans (D-63): how one is read, filled in and kept."""
