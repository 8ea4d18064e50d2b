"""The memories of other programs: one module for each program, with the same shape, and the registry of all."""
