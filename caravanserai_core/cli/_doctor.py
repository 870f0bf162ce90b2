"""`caravanserai doctor`: what is installed, where runs are kept, and what each adapter promises."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import caravanserai_core
from caravanserai_core import capabilities, listing
from caravanserai_core.cli import _out
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.stores import FileStore

if TYPE_CHECKING:
    from caravanserai_core.capabilities import Found
    from caravanserai_core.stores import Store

_LIBRARIES = ("orjson", "click", "rich", "mcp", "psycopg", "obstore")

_STORES = (
    ("Postgres store", "psycopg", "postgres"),
    ("S3, GCS, Azure store", "obstore", "objects"),
)


@click.command(
    "doctor",
    short_help="What is installed, and what each adapter promises.",
    epilog="Keys of --json: caravanserai, python, platform, libraries (name to version or null), "
    "store [url, exists, writable, runs, problem], adapters [name, framework, distribution, "
    "installed, wanted, fits, install, entry], promises [promise, adapters, test]. Exit code 1 "
    "where a framework that is installed does not fit, or the store cannot be used.",
)
@json_option
@common_options
@click.pass_obj
def doctor_(session: Session, as_json: bool) -> None:
    """Tell which frameworks are here, whether their versions fit, and what adapters promise.

    Nothing is imported of a framework, and nothing is written.
    """
    found = capabilities.found()
    store, problem = _store(session)
    wrong = [one for one in found if one.fits is False]
    if as_json:
        _out.print_json(_tree(found, store, problem))
    else:
        _text(found, store, problem)
        for one in wrong:
            _out.note(
                f"{one.adapter.title} {one.version} does not fit: the adapter is made for "
                f"{one.wanted}. {_install(one)}"
            )
    if wrong or problem:
        click.get_current_context().exit(1)


def _store(session: Session) -> tuple[Store | None, str]:
    try:
        store = session.store
        listing.runs(store)
    except (CaravanseraiError, OSError) as error:
        return None, str(error)
    if isinstance(store, FileStore) and not _writable(Path(store.root)):
        return store, f"{store.root} cannot be written to"
    return store, ""


def _writable(root: Path) -> bool:
    """Say whether a folder, or the one that it would be made in, can be written to."""
    while not root.exists() and root != root.parent:
        root = root.parent
    return root.is_dir() and os.access(root, os.W_OK | os.X_OK)


def _install(one: Found) -> str:
    return f'pip install "caravanserai[{one.adapter.extra}]"' if one.adapter.extra else ""


def _tree(found: list[Found], store: Store | None, problem: str) -> dict[str, Any]:
    return {
        "caravanserai": caravanserai_core.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: capabilities.installed(name) for name in _LIBRARIES},
        "store": {
            "url": None if store is None else store.name,
            "exists": isinstance(store, FileStore) and Path(store.root).exists(),
            "writable": store is not None and not problem,
            "runs": None if store is None else len(listing.runs(store)),
            "problem": problem or None,
        },
        "adapters": [
            {
                "name": one.adapter.name,
                "framework": one.adapter.title,
                "distribution": one.adapter.distribution or None,
                "installed": one.version,
                "wanted": one.wanted or None,
                "fits": one.fits,
                "install": _install(one) or None,
                "entry": one.adapter.entry,
            }
            for one in found
        ],
        "promises": [
            {"promise": told, "adapters": [one.adapter.name for one in found], "test": name}
            for name, told in capabilities.PROMISES.items()
        ],
    }


def _text(found: list[Found], store: Store | None, problem: str) -> None:
    _out.line(
        f"caravanserai {caravanserai_core.__version__}, Python {platform.python_version()}, "
        f"{platform.system()}"
    )
    if problem:
        _out.line(f"store: {_out.cell(problem)}")
    elif store is not None:
        here = isinstance(store, FileStore) and not Path(store.root).exists()
        number = len(listing.runs(store))
        count = "not there yet" if here else f"{number} run{'' if number == 1 else 's'}"
        _out.line(f"store: {_out.cell(store.name)} ({count})")
    _out.line()
    _out.table(
        ("adapter", "installed", "made for", "in caravanserai"),
        [
            (
                one.adapter.title,
                _here(one),
                one.wanted or "-",
                one.adapter.entry.removeprefix("caravanserai."),
            )
            for one in found
        ],
    )
    missing = [one for one in found if one.adapter.extra and one.version is None]
    if missing:
        _out.line()
    for one in missing:
        _out.line(f"{one.adapter.title}: {_install(one)}")
    _out.line()
    for title, name, extra in _STORES:
        version = capabilities.installed(name)
        install = f'pip install "caravanserai[{extra}]"'
        _out.line(f"{title}: {install if version is None else f'{name} {version}'}")
    _out.line("\nEach of these adapters promises, and is tested for with real processes killed:\n")
    for told in capabilities.PROMISES.values():
        _out.line(f"  ✓ {told}")


def _here(one: Found) -> str:
    if not one.adapter.distribution:
        return "always"
    if one.version is None:
        return "no"
    return one.version if one.fits is not False else f"{one.version} (does not fit)"
