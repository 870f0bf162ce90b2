"""Names of runs, and the folder each one gets.

A run_id is any string a program cares to use; a folder name is not. A safe run_id is its own
folder name, everything else becomes a readable slug and a hash. `~` is not in the safe
alphabet, so the two sets can never meet, also where the file system ignores case.
"""

from __future__ import annotations

import hashlib
import re

from caravanserai_core.errors import InvalidRunId

# Lower case only: two ids that differ in case must not meet on a case-insensitive disk.
_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9_])?")
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file: reserved with any extension.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")


def check_run_id(run_id: object) -> str:
    """Return `run_id` if it can name a run.

    Args:
        run_id: any string of at least one character.

    Raises:
        InvalidRunId: for anything else; 1 and "1" would otherwise be one run in some places
            and two in others.
    """
    if type(run_id) is str and run_id:
        return run_id
    if isinstance(run_id, str):
        if not run_id:
            raise InvalidRunId("invalid run_id: the empty string. Give the run a name.")
        return str.__str__(run_id)
    raise InvalidRunId(
        f"invalid run_id: a {type(run_id).__name__}. A run_id is a string; write str(...) "
        "where the id is made, so that every process makes the same one."
    )


def folder_name(run_id: str) -> str:
    """Return the folder of a run: `run_id` itself if it is a safe name, else slug~hash.

    The result has at most 64 ASCII characters, is no reserved Windows name, and differs for
    different run_ids also after case folding.
    """
    if _SAFE.fullmatch(run_id) and ".." not in run_id and not _RESERVED.fullmatch(run_id):
        return run_id
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    slug = re.sub(r"[^a-z0-9]+", "-", run_id[:200].lower()).strip("-")[:40].strip("-")
    if not slug or _RESERVED.fullmatch(slug):
        slug = "run"
    return f"{slug}~{digest}"
