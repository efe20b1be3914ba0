"""Language models prompted with the test prompts of trained models: numbers as text, answers read from text.

A ``study`` is a list of questions (``question``), which ``asking`` puts to a server (``endpoint``). Every answer goes
into a ``record`` on disk, is measured as the answers of trained models are, and ends in a ``report``.
"""
