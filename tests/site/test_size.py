"""Pages of many runs: none grows beyond what a browser opens at once."""

import pytest

from tests.site import made

MOST = 3 * 2**20  # bytes of a page or of the data of a run, with 500 runs


@pytest.mark.exhaustive
def test_no_file_of_500_runs_is_larger_than_three_megabytes(tmp_path):
    """Built of 100 runs: what all runs share grows with their number, so that it has a fifth of the room."""
    store = made.store(tmp_path)
    for seed in range(25):
        for normalizer in ("softmax", "ssa", "ssmax", "lssa"):
            made.finished(store, normalizer, seed)
    site = made.site(store)
    of_one = {name for name in site if name.startswith("runs/")}
    assert len(of_one) == 4
    sizes = {name: len(data) for name, data in site.items() if isinstance(data, bytes)}
    assert {name: size for name, size in sizes.items() if size > (MOST if name in of_one else MOST / 5)} == {}
