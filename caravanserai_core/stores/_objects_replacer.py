"""Putting another journal in the place of a run's, and deleting a run.

The new journal is written as a generation of its own, which nothing leads to. The moment at which
it takes the place of the old one is the creation of the old one's closing object, under the next
number: the same compare step as that of an append.
"""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from caravanserai_core.errors import CaravanseraiError, StoreBusy
from caravanserai_core.quoting import visible
from caravanserai_core.stores._objects_layout import (
    Closed,
    closing,
    head_of,
    new_nonce,
    next_generation,
    pack,
    parted,
)
from caravanserai_core.stores._objects_run import Debt
from caravanserai_core.stores._objects_writer import RunWriter, tail_after, texts_of
from caravanserai_core.stores.base import Appended

if TYPE_CHECKING:
    from collections.abc import Container

    from caravanserai_core.stores._objects_layout import Packed
    from caravanserai_core.stores._objects_writer import Seal
    from caravanserai_core.stores.base import Salvage, Sealed, Tail

_PATIENCE = 60.0


class RunReplacer(RunWriter):
    """The objects of one run, for those who remove something of it."""

    def replace(self, known: Tail | None, epoch: int, seal: Seal) -> Appended:
        """Put another journal in the place of this one; see `Store.replace`."""
        until = time.monotonic() + max(_PATIENCE, self.bucket.timeout)
        while time.monotonic() < until:
            view = self.now(known, epoch)
            sealed = seal(view.tail, view.news)
            at = (view.generation, view.number)
            appended = self._publish(at, sealed, notes=True)
            if appended is not None:
                if sealed.shown is not None:
                    self.write_notes(texts_of(sealed.shown))
                return appended
        raise self._outrun()

    def mend(self, seal: Salvage, damaged: Container[str]) -> list[str]:
        """Put another journal in the place of a damaged one; see `Store.mend`."""
        until = time.monotonic() + max(_PATIENCE, self.bucket.timeout)
        aside: dict[str, str] = {}
        while time.monotonic() < until:
            end = self.end_of_all()
            self.settle()
            sealed = seal(self.scan(bodies=True, start=None))
            aside |= self._keep(end.generation, end.number, damaged, aside)
            if self._publish((end.generation, end.number), sealed, notes=False) is not None:
                return [self.bucket.path(key) for key in aside.values()]
        raise self._outrun()

    def delete(self) -> bool:
        """Remove the run; says whether there was one."""
        until = time.monotonic() + max(_PATIENCE, self.bucket.timeout)
        while time.monotonic() < until:
            end = self.end()
            self.settle()
            if not end.number:
                return False
            closed = Closed(next_generation(end.generation), deleted=True, swept=False)
            if self._close(end.generation, end.number, closed):
                self.sweep(Debt(end.generation, end.number + 1, closed), ())
                self.leave_hint(closed.next, 0)
                return True
        raise self._outrun()

    def _outrun(self) -> StoreBusy:
        return StoreBusy(
            f"{visible(self.bucket.path(self.folder))}: others wrote to the run each time it was "
            "to be replaced. Nothing was changed. Try again when they are done."
        )

    # ------------------------------------------------------------------ publishing

    def _publish(self, at: tuple[str, int], sealed: Sealed, *, notes: bool) -> Appended | None:
        """Write a generation and let it follow `at`; None: something else does."""
        name = next_generation(at[0])
        packed = pack(sealed.lines, parted(sealed.lines), 1, 0, new_nonce())
        keys = [self.key(name, number) for number in range(1, len(packed.objects) + 1)]
        try:
            self._write_all(keys, packed)
        except CaravanseraiError:
            with contextlib.suppress(CaravanseraiError):
                self.bucket.delete(keys)
            raise
        closed = Closed(name, deleted=False, swept=False)
        if not self._close(*at, closed):
            self.bucket.delete(keys)
            return None
        last = len(packed.objects)
        self.memory.ends(self.folder, name, last)
        heads = [head_of(line) for line in sealed.lines]
        kept = {head["waypoint"] for head in heads if head["kind"] == "waypoint"}
        self.sweep(Debt(at[0], at[1] + 1, closed), kept, notes=notes)
        self.memory.ends(self.folder, name, last)
        self.leave_hint(name, last)
        return Appended(tail_after(sealed, name, last, packed), packed.places)

    def _write_all(self, keys: list[str], packed: Packed) -> None:
        content = dict(zip(keys, packed.objects, strict=True))
        self.bucket.map(lambda key: self.bucket.write(key, content[key]), keys)

    def _close(self, generation: str, number: int, closed: Closed) -> bool:
        """Close a generation behind its last append; says whether that was still the last."""
        nonce = new_nonce()
        key = self.key(generation, number + 1)
        if self.bucket.create(key, closing(number + 1, nonce, closed), nonce) is not None:
            return False
        self.memory.owe(self.folder, Debt(generation, number + 1, closed))
        self.memory.ends(self.folder, closed.next, 0)
        return True

    def _keep(
        self, generation: str, last: int, damaged: Container[str], kept: dict[str, str]
    ) -> dict[str, str]:
        """Copy what is damaged, or all where nothing is named; returns key by address."""
        paths = {self.path(generation, number): number for number in range(1, last + 1)}
        named = [path for path in paths if path in damaged] or list(paths)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        folder = f"{self.folder}/damaged-{stamp}-{new_nonce(4)}"
        copied: dict[str, str] = {}
        for path in named:
            if path in kept:
                continue
            found = self.bucket.get(self.key(generation, paths[path]))
            if found is not None:
                copied[path] = f"{folder}/{generation}-{paths[path]:010d}.jsonl"
                self.bucket.write(copied[path], found.data)
        return copied
