"""The values that a model's answers never exceed."""
