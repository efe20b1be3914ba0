"""One ground for all tests of this folder: it takes longer to make than most of them."""

import pytest

from tests.torture.ground import Ground


@pytest.fixture(scope="session")
def ground(tmp_path_factory):
    pytest.importorskip("transformers", reason="transformers is not installed")
    return Ground(tmp_path_factory.mktemp("ground"))
