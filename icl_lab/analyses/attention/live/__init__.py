"""The attention page computes: it carries the models of its runs and lets a reader change what they read and how.

The script is split by ideas, in the order in which the page holds it: ``ENGINE`` is the forward pass, which needs no
page and runs under Node as well; ``CONTROLS`` is what a reader sees of it.
"""

from icl_lab.analyses.attention.live.carried import Carried, carried, known, refusal
from icl_lab.analyses.attention.live.script import controls, engine, names

__all__ = ["Carried", "carried", "controls", "engine", "known", "names", "refusal"]
