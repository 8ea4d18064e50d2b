"""Generation of text by a language model, with templates, usage, cost and budgets."""
