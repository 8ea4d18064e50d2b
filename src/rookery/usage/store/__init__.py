"""All SQL of usage."""
