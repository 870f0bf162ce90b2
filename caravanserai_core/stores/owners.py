"""Who works on a run: what others are told of it, and what its owner has in hand."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import NamedTuple

from caravanserai_core.errors import RunBusy
from caravanserai_core.quoting import shell_word, visible


class Holder(NamedTuple):
    """Who works on a run.

    Attributes:
        host: name of the machine, "" where that is not known.
        pid: process id there, 0 where that is not known.
        since: when it began, ISO 8601 in UTC, "" where that is not known.
        epoch: the epoch under which it writes.
        by: nonce of the process.
    """

    host: str
    pid: int
    since: str
    epoch: int
    by: str


def host_name() -> str:
    """Return the name of this machine."""
    return os.uname().nodename if hasattr(os, "uname") else ""


def busy_error(run_id: str, holder: Holder, lapses: float | None = None) -> RunBusy:
    """Build the error for a run that a living process holds.

    Args:
        run_id: the run.
        holder: who has it.
        lapses: seconds without a sign of life after which the run is free; None: the store sees
            whether its owner lives.
    """
    signs = "" if lapses is None else f" After {lapses:g} s without a sign of life it is free."
    who = f"process {holder.pid}" if holder.pid else "another process"
    if holder.host:
        who += f" on {visible(holder.host)}"
    if holder.since:
        who += f", since {visible(holder.since[:19])} UTC"
    return RunBusy(
        f"run {visible(run_id)} is being worked on by {who}.{signs} Wait until that "
        "has ended, or end it. "
        "To take the run over from it on purpose: takeover=True, or `caravanserai resume "
        f"{shell_word(run_id)} --take-over`; what it writes after that is refused.",
        run_id=run_id,
        host=holder.host,
        pid=holder.pid,
        since=holder.since,
    )


class Lapsed(Exception):
    """The owner of a run is dead, or has shown no sign of life for too long.

    What it wrote last may still be on its way, or it may wake up: so the run is taken over from
    it, which fences it, and not simply held. Raised by stores whose leases are not the operating
    system's; never seen outside of the core.

    Attributes:
        holder: who that was.
        lease: the lease that lapsed; only the store knows what it means.
    """

    def __init__(self, holder: Holder, lease: object) -> None:
        super().__init__(holder)
        self.holder = holder
        self.lease = lease


class Hold(ABC):
    """A lease: its process works on a run until this is released, or until the process ends."""

    @abstractmethod
    def release(self) -> None:
        """Give the run back; nothing is to be done where somebody took it over, or again."""
