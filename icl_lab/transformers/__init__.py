"""Any normalizer inside a Hugging Face model: ``install``, ``uninstall``, ``load`` and ``load_adapter`` of saved ones.

The normalizers are the modules of ``icl_lab.normalizers``, unchanged. They are reached through the attention interface
of transformers, so that the model's own code (positions, caches, heads, training) stays as it is.
"""

from icl_lab.base.errors import LabError

try:
    from transformers import AttentionInterface, AttentionMaskInterface  # noqa: F401
except ImportError:
    raise LabError("icl_lab.transformers needs transformers 5: pip install 'icl_lab[hf]'.") from None

from icl_lab.transformers.placing import install, uninstall
from icl_lab.transformers.saved import load, load_adapter

__all__ = ["install", "load", "load_adapter", "uninstall"]
