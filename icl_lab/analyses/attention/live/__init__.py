"""The attention page computes: it holds graphs of its models and lets a reader change what they read and how.

The script is split by ideas: ``engine`` runs graphs and needs no page (it runs under Node as well); ``controls`` is
what a reader sees of it.
"""

from icl_lab.analyses.attention.live.export import Exported, LayerGraphs, export_model, export_normalizer
from icl_lab.analyses.attention.live.graph import Graph, NotExportable
from icl_lab.analyses.attention.live.script import controls, engine

__all__ = [
    "Exported",
    "Graph",
    "LayerGraphs",
    "NotExportable",
    "controls",
    "engine",
    "export_model",
    "export_normalizer",
]
