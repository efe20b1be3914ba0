"""Language models prompted with the test prompts of trained models: numbers as text, answers read from text.

A ``study`` is a list of questions (``question``). ``asking`` puts them to an engine: a server (``endpoint``) or a model
on disk (``inprocess``). Every answer goes into a ``record`` on disk, is measured as the answers of trained models are
(``measurement``), and ends in a ``report``.
"""
