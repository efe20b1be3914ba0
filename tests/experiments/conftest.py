"""Scripts of the folder ``experiments/`` as modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
