"""What the CLI left on this machine's disk: its own transcripts, and folders of dead starts.

After a crash the CLI's own file is often ahead of what reached the run.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from claude_agent_sdk import project_key_for_directory

from caravanserai.claude_agent import _entries, _processes
from caravanserai.claude_agent._transcripts import Key
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from claude_agent_sdk import ClaudeAgentOptions

    from caravanserai.claude_agent._entries import Entry
    from caravanserai.claude_agent._transcripts import Transcripts

_log = logging.getLogger("caravanserai")

_LEFT = "claude-resume-*"
"""Temporary configuration folders that the SDK makes to resume from a store (0.2.189). They hold
the transcript and a copy of the user's credentials, and stay where the program is killed."""


class Local(NamedTuple):
    """What was found of a session.

    Attributes:
        usable: the CLI can resume it from its own disk, in the working folder of the options.
        blocked: there is a file of this name, so that no new session can be begun under it.
        taken: how many entries the run did not have.
    """

    usable: bool
    blocked: bool
    taken: int


def config_folder(given: ClaudeAgentOptions) -> Path:
    """Return the CLI's configuration folder, as it will use it."""
    named = given.env.get("CLAUDE_CONFIG_DIR") or os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(named) if named else Path(given.env.get("HOME") or Path.home()) / ".claude"


def take_over(run_id: str, session: str, given: ClaudeAgentOptions, kept: Transcripts) -> Local:
    """Keep what only the CLI's own files have of a session, and clear up what dead starts left.

    A file is taken over where it goes on from what the run has. One that lacks a part of it is
    from another line of the session's life (another machine went on with the run since).

    Args:
        run_id: the run, for what is said.
        session: the session.
        given: the options of the SDK that it is going to be resumed with.
        kept: the transcripts of the run.
    """
    here = project_key_for_directory(given.cwd)
    usable, blocked, taken = False, False, 0
    for file, folder in _files(session, config_folder(given)):
        main = _read(file)
        left = folder is not None
        blocked = blocked or not left
        if kept.knows(Key(session)) <= _ids(main):
            before = sum(kept.counts.values())
            for path, entries in [("", main), *_subagents(file.with_suffix(""))]:
                key = Key(session, path)
                if kept.knows(key) <= _ids(entries):
                    kept.keep(key, _after(entries, kept.knows(key)), durable=True)
            taken += sum(kept.counts.values()) - before
            usable = usable or (not left and file.parent.name == here and bool(_ids(main)))
        elif main:
            _log.info(
                "run %s: %s is behind what the run has, which goes on from its own copy",
                one_line(run_id),
                one_line(str(file), 300),
            )
        if folder is not None and not _processes.is_used(folder):
            shutil.rmtree(folder, ignore_errors=True)
    if taken:
        # The file may be ahead of a copy that is looked at first.
        usable = usable and _is_newest(session, given, kept)
    return Local(usable, blocked, taken)


def is_running(session: str, given: ClaudeAgentOptions, running: Iterable[str]) -> bool:
    """Say whether one of some calls has no result yet in the CLI's own files."""
    left = set(running)
    for file, _ in _files(session, config_folder(given)):
        for entries in (_read(file), *(found for _, found in _subagents(file.with_suffix("")))):
            left -= {result.id for result in _entries.results(entries)}
    return bool(left)


def _is_newest(session: str, given: ClaudeAgentOptions, kept: Transcripts) -> bool:
    key = project_key_for_directory(given.cwd)
    file = config_folder(given) / "projects" / key / f"{session}.jsonl"
    return kept.knows(Key(session)) <= _ids(_read(file))


def _files(session: str, config: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the files of a session, whatever folder it was begun in.

    Of those of dead starts with the temporary folder that they are in.
    """
    name = f"{session}.jsonl"
    for folder in Path(tempfile.gettempdir()).glob(_LEFT):
        if not _is_ours(folder):
            continue
        for file in folder.glob(f"projects/*/{name}"):
            yield file, folder
    for file in config.glob(f"projects/*/{name}"):
        yield file, None


def _is_ours(folder: Path) -> bool:
    """Say whether a folder is one that this user made: others write to the same place."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and (
        not hasattr(os, "getuid") or status.st_uid == os.getuid()
    )


def _read(file: Path) -> list[Entry]:
    """Return the entries of a file; a torn or damaged line is none, as the CLI reads it."""
    found: list[Entry] = []
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError:
        return found
    for line in lines:
        try:
            entry: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and not _entries.is_local(entry):
            found.append(entry)
    return found


def _subagents(folder: Path) -> Iterator[tuple[str, list[Entry]]]:
    for file in sorted(folder.glob("subagents/agent-*.jsonl")):
        entries = _read(file)
        meta = file.with_suffix("").with_suffix(".meta.json")
        try:
            told: Any = json.loads(meta.read_bytes())
        except (OSError, ValueError):
            told = None
        if isinstance(told, dict):
            entries.append({"type": "agent_metadata", **told})
        yield f"subagents/{file.stem}", entries


def _ids(entries: list[Entry]) -> frozenset[str]:
    return frozenset(uuid for entry in entries if (uuid := _entries.uuid_of(entry)))


def _after(entries: list[Entry], known: frozenset[str]) -> list[Entry]:
    """Return what stands behind the last entry that is known."""
    last = max((n for n, e in enumerate(entries) if _entries.uuid_of(e) in known), default=-1)
    return entries[last + 1 :]
