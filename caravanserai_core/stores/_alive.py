"""Whether the process that left a mark is still there, as far as this machine can tell.

A store on another machine cannot see that the owner of a lease died. Where owner and observer are
on one machine, the observer can: by the process id, and by what tells that process from another
one that was given the same id since. Machines are told apart by the boot and by the namespace that
the ids belong to, so that nothing is concluded about a process in another container.
"""

from __future__ import annotations

import contextlib
import os

from caravanserai_core.stores.owners import host_name


def mark() -> str:
    """Return what tells this process from all others; see `is_gone`.

    Where the system does not say when a process began, it is only the machine and the process id:
    enough to know oneself again, and no proof of anybody's death.
    """
    world = _world()
    began = _began(os.getpid())
    if not world or not began:
        return f"{host_name()} {os.getpid()}"
    return f"{world} {os.getpid()} {began}"


def is_gone(left: str) -> bool:
    """Say whether the process that left this mark is certainly not alive any more."""
    words = left.split()
    if len(words) != 4 or not words[2].isdigit() or f"{words[0]} {words[1]}" != _world():
        return False
    began = _began(int(words[2]))
    return began is not None and began != words[3]


def _world() -> str:
    """Return what the process ids here belong to: the boot, and the namespace."""
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    return ""


def _began(pid: int) -> str | None:
    """Return when a process began, in ticks since the boot; "": it is dead; None: not to be known.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: fields 3 and 22. The second field,
    the program's name in brackets, may hold spaces and brackets itself.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # A zombie is dead, though nobody has asked for its exit code yet.
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)  # /proc may hide the processes of others
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return None
