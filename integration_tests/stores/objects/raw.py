"""What lies in a bucket, without the store under test."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import obstore

from caravanserai_core.names import folder_name
from caravanserai_core.stores._objects_address import connect, parse_address
from caravanserai_core.stores.base import Store


def objects(url: str) -> dict[str, bytes]:
    """Return the content of all objects below the prefix of an address, by their keys there."""
    address = parse_address(url)
    client = connect(address, 10)
    found: dict[str, bytes] = {}
    for batch in obstore.list(client, address.prefix):
        for meta in batch:
            try:
                data = bytes(obstore.get(client, meta["path"]).bytes())
            except FileNotFoundError:
                continue
            found[meta["path"].removeprefix(f"{address.prefix}/")] = data
    return found


def keys(url: str) -> list[str]:
    """Return the full keys of all objects whose keys begin like the prefix does, in letters."""
    address = parse_address(url)
    client = connect(address, 10)
    return [meta["path"] for batch in obstore.list(client) for meta in batch]


def journals(found: dict[str, bytes]) -> dict[str, list[bytes]]:
    """Return the lines of the journal that counts, of each run by its folder."""
    generations: dict[str, dict[str, dict[int, bytes]]] = defaultdict(lambda: defaultdict(dict))
    for key, data in found.items():
        parts = key.split("/")
        if len(parts) == 3 and parts[2].endswith(".jsonl") and not parts[1].startswith("damaged"):
            generations[parts[0]][parts[1]][int(parts[2][:-6])] = data
    lines: dict[str, list[bytes]] = {}
    for folder, by_name in generations.items():
        name = "1"
        while True:
            here = by_name.get(name, {})
            assert sorted(here) == list(range(1, len(here) + 1)), (folder, name, sorted(here))
            closed = _header(here[len(here)]).get("closed") if here else None
            if closed is None:
                break
            name = closed["next"]
        if here:
            lines[folder] = [
                line for _, data in sorted(here.items()) for line in data.split(b"\n")[1:-1]
            ]
    return lines


def _header(data: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(data.partition(b"\n")[0])
    return said


class Raw:
    """The raw reads of `StoreTests`, for object stores."""

    def raw_lines(self, store: Store, run_id: str) -> list[bytes]:
        return journals(objects(store.url)).get(folder_name(run_id), [])

    def raw_runs(self, store: Store) -> int:
        return len(journals(objects(store.url)))
