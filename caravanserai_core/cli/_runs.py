"""What only the command line needs of a run: its folder, and its name completed in a shell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from caravanserai_core import listing
from caravanserai_core.cli._out import cell
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.stores import FileStore

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from caravanserai_core.listing import RunInfo
    from caravanserai_core.stores import Store


def folder_of(store: Store, run_id: str) -> str:
    """Return where a run lies: in a store on the disk the absolute path of its folder."""
    where = store.where(run_id)
    if isinstance(store, FileStore) and not Path(where).exists():
        old = store.legacy(run_id)
        return old.path if old is not None else where
    return where


def listed_folder(store: Store, info: RunInfo) -> str:
    """Return the same as `folder_of` for a run of a list."""
    return f"{store.root}/{info.folder}" if isinstance(store, FileStore) else info.folder


def complete(
    context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Complete a run's name in the shell."""
    from click.shell_completion import CompletionItem

    from caravanserai_core.cli._app import Session

    session = context.ensure_object(Session)
    try:
        names = [info.run_id for info in listing.runs(session.store)]
    except (CaravanseraiError, OSError):
        return []
    # A name that would not come back as it is from the command line is not offered.
    return [CompletionItem(name) for name in names if name.startswith(typed) and name == cell(name)]
