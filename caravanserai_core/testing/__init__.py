"""The promises of a store as tests, for whoever writes one. Needs pytest.

    class TestMyStore(StoreTests):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path / "runs")

        def reopen(self, store):
            return MyStore(store.url)

        def raw_lines(self, store, run_id):
            return file_of(run_id).read_bytes().splitlines()

        def raw_runs(self, store):
            return len(list(folder.iterdir()))

The `raw_…` methods look at what the back end holds without the store under test, so that it
cannot vouch for itself. The records are sealed by hand here (`HandWriter`): no journal is needed.
"""

from __future__ import annotations

from caravanserai_core.testing._adapters import PAUSED, AdapterTests, Job
from caravanserai_core.testing._appends import AppendTests
from caravanserai_core.testing._leases import LeaseTests
from caravanserai_core.testing._reads import ReadTests
from caravanserai_core.testing._replaces import ReplaceTests
from caravanserai_core.testing._writer import HOSTILE_IDS, HandWriter

__all__ = ["HOSTILE_IDS", "PAUSED", "AdapterTests", "HandWriter", "Job", "StoreTests"]


class StoreTests(AppendTests, LeaseTests, ReplaceTests, ReadTests):
    """Tests that every store passes. A subclass gives the fixture `store` and three methods."""
