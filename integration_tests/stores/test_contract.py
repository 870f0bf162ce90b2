"""The shipped tests of a store, on the stores that are shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from caravanserai_core.names import folder_name
from caravanserai_core.stores import FileStore, MemoryStore, Store
from caravanserai_core.testing import StoreTests


class TestFileStore(StoreTests):
    @pytest.fixture
    def store(self, store_dir: Path) -> FileStore:
        return FileStore(store_dir)

    def reopen(self, store: Store) -> FileStore:
        return FileStore(store.url)

    def raw_lines(self, store: Store, run_id: str) -> list[bytes]:
        folder = Path(store.url) / folder_name(run_id)
        segments = sorted(folder.glob("journal-*.jsonl"), key=lambda p: int(p.stem[8:]))
        data = b"".join(path.read_bytes() for path in segments)
        assert not data or data.endswith(b"\n")
        return data.split(b"\n")[:-1]

    def raw_runs(self, store: Store) -> int:
        return len(list(Path(store.url).glob("*/journal-1.jsonl")))


class TestMemoryStore(StoreTests):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    def reopen(self, store: Store) -> Store:
        return store

    def raw_lines(self, store: Store, run_id: str) -> list[bytes]:
        assert isinstance(store, MemoryStore)
        return list(store._lines.get(run_id, ()))

    def raw_runs(self, store: Store) -> int:
        assert isinstance(store, MemoryStore)
        return len(store._lines.keys() | store._notes.keys())
