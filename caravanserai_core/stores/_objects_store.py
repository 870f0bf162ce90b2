"""Runs in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure.

How a run lies there is told in `_objects_layout`; why an append needs one request and no lock in
`_objects_writer`; what becomes of an answer that does not come in `_objects_bucket`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from caravanserai_core.errors import StoreFailed, StoreRefused, UsageError
from caravanserai_core.names import folder_name
from caravanserai_core.stores._objects_address import parse_address
from caravanserai_core.stores._objects_bucket import AT_ONCE, Bucket
from caravanserai_core.stores._objects_layout import LINES, is_own
from caravanserai_core.stores._objects_lease import Leases
from caravanserai_core.stores._objects_probe import probe
from caravanserai_core.stores._objects_replacer import RunReplacer
from caravanserai_core.stores._objects_run import Memory
from caravanserai_core.stores._objects_writer import texts_of
from caravanserai_core.stores.base import Store
from caravanserai_core.stores.owners import busy_error

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from caravanserai_core.records import Record
    from caravanserai_core.stores._objects_address import Client
    from caravanserai_core.stores.base import (
        Appended,
        Bad,
        Listed,
        Recent,
        Salvage,
        Sealed,
        Shown,
        Tail,
    )
    from caravanserai_core.stores.owners import Hold, Holder, Lapsed

    Seal = Callable[[Tail | None, list[Record] | None], Sealed]

_SEGMENT: Final = 48


class ObjectStore(Store):
    """Runs in an object store, below a prefix.

    Credentials come from the environment, as the providers' own tools read them: `AWS_…`,
    `GOOGLE_…`, `AZURE_…`; an address holds none. Each append is durable when it returns: that is
    what these stores are, and `sync=False` changes nothing.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. Its options
            are `keep`, `lease`, `timeout`, `endpoint` (the URL of another server) and `region`.
        keep: how many of the newest waypoints of each run stay; None: as the address says, or all.
        timeout: seconds that a request may take, and in which one that fails is tried again; None:
            as the address says, or 20.
        lease: seconds without a sign of life after which the owner of a run counts as gone; None:
            as the address says, or 30.
        client: an `obstore` store for the bucket, in place of one made from the environment: for
            credentials that come from elsewhere.

    Raises:
        UsageError: the address is none, or does not fit the environment.
    """

    max_chain = 32
    is_far = True

    def __init__(
        self,
        url: str,
        *,
        keep: int | None = None,
        timeout: float | None = None,
        lease: float | None = None,
        client: Client | None = None,
    ) -> None:
        address = parse_address(url)
        said: dict[str, Any] = {"keep": keep, "lease": lease, "timeout": timeout}
        address = address._replace(**{name: it for name, it in said.items() if it is not None})
        if any(it is not None and it <= 0 for it in said.values()):
            raise UsageError("keep, lease and timeout of an object store are numbers above 0.")
        self._address = address
        self.keep = address.keep
        self._bucket = Bucket(address, address.timeout or 20.0, client)
        self._bucket.connect()  # what is wrong with the environment shows here
        self._memory = Memory()
        self.lapses = address.lease or 30.0
        self._leases = Leases(self._bucket, self.lapses)

    @property
    def url(self) -> str:
        return self._address.url

    @property
    def key(self) -> object:
        address = self._address
        return (address.scheme, address.endpoint, address.bucket, address.prefix)

    def where(self, run_id: str) -> str:
        return self._bucket.path(folder_name(run_id))

    def _run(self, run_id: str) -> RunReplacer:
        return RunReplacer(self._bucket, folder_name(run_id), self._memory)

    def _to_write(self, run_id: str) -> RunReplacer:
        """Return the objects of a run, for a writer: this server has to keep writers apart."""
        if self.key not in _probed:
            with _probing:
                if self.key not in _probed:
                    probe(self._bucket)
                    _probed.add(self.key)
        return self._run(run_id)

    # ------------------------------------------------------------------ writing

    def append(
        self,
        run_id: str,
        known: Tail | None,
        epoch: int,
        seal: Seal,
        *,
        sync: bool = True,
    ) -> Appended:
        return self._to_write(run_id).append(known, epoch, seal)

    def replace(self, run_id: str, known: Tail | None, epoch: int, seal: Seal) -> Appended:
        return self._to_write(run_id).replace(known, epoch, seal)

    def mend(self, run_id: str, seal: Salvage, damaged: Container[str]) -> list[str]:
        return self._to_write(run_id).mend(seal, damaged)

    def delete(self, run_id: str) -> bool:
        run = self._run(run_id)
        holder = self._leases.held_elsewhere(run.folder)
        if holder is not None:
            raise busy_error(run_id, holder, self.lapses)
        gone = run.delete()
        if gone:
            self._leases.free(run.folder)
        return gone

    # ------------------------------------------------------------------ leases

    def hold(self, run_id: str, known: Tail | None, holder: Holder) -> Hold | None:
        return self._leases.hold(run_id, self._to_write(run_id), known, holder)

    def take_over(
        self,
        run_id: str,
        known: Tail | None,
        holder: Holder,
        seal: Seal,
        *,
        lapsed: Lapsed | None = None,
    ) -> tuple[Appended, Hold]:
        run = self._to_write(run_id)
        return self._leases.take_over(run_id, run, known, holder, seal, lapsed)

    def holder(self, run_id: str) -> Holder | None:
        return self._leases.holder(folder_name(run_id))

    # ------------------------------------------------------------------ reading

    def wants_roll(self, tail: Tail, size: int) -> bool:
        return bool(tail.token.append - tail.token.segment + 1 >= _SEGMENT)

    def recent(self, run_id: str) -> Recent | None:
        run = self._run(run_id)
        return run.look(run.recent)

    def chain(self, run_id: str, waypoint: int) -> list[Record]:
        run = self._run(run_id)
        return run.look(lambda: run.chain(waypoint))

    def scan(self, run_id: str, *, bodies: bool, start: Any = None) -> Iterator[Record | Bad]:
        yield from self._run(run_id).scan(bodies=bodies, start=start)

    def listing(self) -> Iterator[Listed]:
        def listed(name: str) -> Listed | None:
            run = RunReplacer(self._bucket, name, self._memory)
            return run.listed(lambda: self._leases.holder(name) is not None)

        names = [name for name in self._bucket.inside("")[0] if not name.startswith(".")]
        for first in range(0, len(names), 4 * AT_ONCE):
            for found in self._bucket.map(listed, names[first : first + 4 * AT_ONCE]):
                if found is not None:
                    yield found

    def place_of(self, run_id: str, record: Record) -> tuple[str, int]:
        run = self._run(run_id)
        known = self._memory.end(run.folder)
        generation = known[0] if known is not None else run.end().generation
        return run.path(generation, record.place // LINES), 0

    def size(self, folder: str) -> int | None:
        try:
            return sum(size for key, size in self._bucket.below(folder) if is_own(folder, key))
        except (StoreFailed, StoreRefused):
            return None

    # ------------------------------------------------------------------ notes

    def put_note(self, run_id: str, shown: Shown) -> None:
        run = self._run(run_id)
        if run.end().number:
            run.write_notes(texts_of(shown))

    def put_notes(self, run_id: str, known: Tail, notes: Mapping[str, str], latest: Shown) -> None:
        run = self._run(run_id)
        end = run.end()
        if not end.number or end.generation != known.token.generation:
            return
        newest = texts_of(latest) if end.number == known.token.append else {}
        run.write_notes({**notes, **newest})

    def get_note(self, run_id: str, name: str) -> str | None:
        found = self._bucket.get(f"{folder_name(run_id)}/{name}")
        return None if found is None else found.data.decode("utf-8", "replace")

    def close(self) -> None:
        self._bucket.close()


_probed: set[object] = set()
_probing = threading.Lock()
