"""The usage of models and tools, and its cost: one ledger of sums by day, which all domains add to, and the reports over it."""
