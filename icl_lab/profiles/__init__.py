"""What a rule does to scores and what it costs, without any training."""
