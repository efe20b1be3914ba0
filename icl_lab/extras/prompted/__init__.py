"""Language models prompted with the test prompts of trained models: numbers as text, answers read from text.

A ``study`` is a list of questions (``question``), which are written to a file of requests. Whoever runs the model
answers them; the answers are read (``batch``), measured as the answers of trained models are, and end in a ``report``.
"""
