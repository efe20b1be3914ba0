"""Language models that are prompted with the test prompts of trained models: numbers as text, answers read from text.

A question (``question``) is one test prompt up to one answer, written down in a format (``formats``). It is put to an
engine: a server (``endpoint``) or a model on disk (``inprocess``); who asks how often is said in ``asking`` and
``budget``. Every answer goes into a record on disk (``record``), is read strictly (``parser``) and measured as the
answers of trained models are (``measurement``).
"""
