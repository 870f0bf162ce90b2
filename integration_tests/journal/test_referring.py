"""An entry and the waypoint behind it hold a value once, and readers never see that."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from caravanserai import fork, prune
from caravanserai_core import reading, referring, survey
from caravanserai_core.api import load
from caravanserai_core.compaction import copy_run
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.journal import forget
from caravanserai_core.notes import Note
from caravanserai_core.patching import Op
from caravanserai_core.pipeline import Pipeline
from caravanserai_core.records import Draft, Record, parse
from caravanserai_core.repair import repair
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import verify
from integration_tests.format.plain_reader import read_entries

RUN = "chat"
STEPS = 12


def message(number: int) -> dict[str, Any]:
    """A message whose text stands nowhere else."""
    return {"role": "assistant", "content": f"message {number} " + "x" * 900, "pair": (number,)}


def written(number: int) -> list[Any]:
    """What a step wrote: it grew a list, replaced a text, and two small values."""
    return [["messages", [message(number)]], ["plan", f"plan {number} " * 20], ["n", number]]


def grow(store: FileStore, steps: int = STEPS, lane: str = "") -> None:
    """Write a run as a framework does: what a step wrote, then the state that comes of it."""
    forget(store, RUN)
    run = Pipeline(store, RUN, "python", "no framework")
    run.begin("to see it grow")
    messages = [message(0) for _ in range(6)]
    for number in range(1, steps + 1):
        entry = run.entry("writes", written(number), lane="", meta={"of": number})
        messages = [*messages, message(number)]
        state = {"messages": messages, "plan": f"plan {number} " * 20, "n": number}
        run.checkpoint(run.prepare(state, lane), Note("A step."), lane=lane, meta={}).result()
        entry.result(0, sync=True)
    run.write_notes()


def entries(store: FileStore, run: str = RUN) -> dict[int, Any]:
    """Return the data of each entry, by what its head says of it."""
    found = survey.records(store, run, bodies=True)
    return {r.head["meta"]["of"]: reading.data_of(r) for r in found if r.kind == "entry"}


def stored(store: FileStore, run: str = RUN) -> list[Record]:
    """Return the records as they stand on the disk."""
    lines = (Path(store.where(run)) / "journal-1.jsonl").read_bytes().splitlines()
    return [parse(line) for line in lines]


def test_what_an_entry_shares_with_its_waypoint_is_written_once(tmp_path: Path) -> None:
    """The bytes stand in the patch; what is read is what was written."""
    store = FileStore(tmp_path)
    grow(store)

    text = (tmp_path / RUN / "journal-1.jsonl").read_text()
    # The first waypoint is full: its entry is as it is.
    assert [text.count(f"message {n} ") for n in range(1, STEPS + 1)] == [2] + [1] * (STEPS - 1)
    assert [text.count(f'"plan {n} ') for n in range(1, STEPS + 1)] == [2] + [1] * (STEPS - 1)
    shared = [record for record in stored(store) if referring.refers(record)]
    assert [record.head["in"] for record in shared] == list(range(2, STEPS + 1))
    assert all(record.head["tagged"] for record in shared)
    assert entries(store) == {n: written(n) for n in range(1, STEPS + 1)}
    assert verify(store, RUN).findings == []


def test_the_plain_reader_reads_entries(tmp_path: Path) -> None:
    """The specification is enough to find what an entry shares."""
    store = FileStore(tmp_path)
    grow(store)
    plain = json.loads(json.dumps([w for n in range(1, STEPS + 1) for w in written(n)]))
    found = json.dumps([w for data in read_entries(tmp_path / RUN) for w in data])
    assert json.loads(found.replace('{"$tuple": ', "").replace("]}}", "]}")) == plain


def test_a_waypoint_of_another_lane_is_not_referred_to(tmp_path: Path) -> None:
    """What an entry refers to is of its own lane."""
    store = FileStore(tmp_path)
    grow(store, lane="side")
    assert not any(map(referring.refers, stored(store)))
    assert entries(store) == {n: written(n) for n in range(1, STEPS + 1)}


def test_entries_stay_where_their_waypoint_goes(tmp_path: Path) -> None:
    """A pruned, copied or forked run has them written out."""
    store, other = FileStore(tmp_path / "one"), FileStore(tmp_path / "other")
    grow(store)
    expected = {n: written(n) for n in range(1, STEPS + 1)}

    copy_run(store, RUN, other, "copy")
    fork(RUN, at=STEPS - 2, new_run_id="fork", store=store)
    run = Pipeline(store, RUN, "python", "no framework")
    run.compact(lambda record: record.waypoint == STEPS if record.kind == "waypoint" else True)

    assert entries(store) == entries(other, "copy") == expected
    left = entries(store, "fork")
    assert left == {n: written(n) for n in left}
    assert left
    for where, name in ((store, RUN), (other, "copy"), (store, "fork")):
        assert not any(map(referring.refers, stored(where, name)))
        assert [f for f in verify(where, name).findings if f.level != "note"] == []
    assert load(RUN, store=store)["n"] == STEPS
    assert prune(RUN, keep=1, store=store) == 0


def test_what_an_entry_shared_goes_with_a_damaged_waypoint(tmp_path: Path) -> None:
    """Repair keeps every entry whose waypoint is whole, and no other."""
    store = FileStore(tmp_path)
    grow(store)
    path = tmp_path / RUN / "journal-1.jsonl"
    data = path.read_bytes()
    at = data.index(b"message 5 ")
    path.write_bytes(data[:at] + b"massage" + data[at + 7 :])
    forget(store, RUN)

    done = repair(store, RUN)

    assert done.kept == [1, 2, 3, 4]
    left = {n: written(n) for n in range(1, STEPS + 1) if n != 5}
    assert entries(store) == left
    assert not any(map(referring.refers, stored(store)))
    assert not verify(store, RUN).damaged


@pytest.mark.parametrize("tag", [b'{"$in":9}', b'{"$in":true}', b'{"$in":"0"}', b'{"$in":-1}'])
def test_a_reference_that_leads_nowhere_is_damage(tmp_path: Path, tag: bytes) -> None:
    """It is found by `verify`, and refused by who reads the entry."""
    store = FileStore(tmp_path)
    grow(store)
    lines = (tmp_path / RUN / "journal-1.jsonl").read_bytes().splitlines()
    records = [parse(line) for line in lines]
    begin = next(at for at, record in enumerate(records) if referring.refers(record))
    changed = _sealed(records, begin, tag)
    (tmp_path / RUN / "journal-1.jsonl").write_bytes(b"\n".join([*lines[:begin], *changed, b""]))
    forget(store, RUN)

    found = [finding for finding in verify(store, RUN).findings if finding.level == "damage"]
    refused = [r for r in survey.records(store, RUN, bodies=True) if r.kind == "entry"]

    assert [finding.what.startswith(f"record {begin + 1} ") for finding in found] == [True]
    with pytest.raises((JournalDamaged, ValueError)):
        reading.data_of(refused[-1])


def _sealed(records: list[Record], begin: int, tag: bytes) -> list[bytes]:
    """Return the lines of an append with another reference, whose sums are right."""
    prev, lines = records[begin].head["prev"], []
    placed = ("seq", "app", "kind", "waypoint", "prev", "time", "by", "body_sha256")
    for record in records[begin : begin + 2]:
        fields = {key: value for key, value in record.head.items() if key not in placed}
        body = record.body or b""
        if record.seq == begin + 1:
            first = body.index(b'{"$in":')
            body = body[:first] + tag + body[body.index(b"}", first) + 1 :]
        draft = Draft(record.kind, fields, by="x", body=body, time=record.head["time"])
        text, prev = draft.seal(
            seq=record.seq, first=begin + 1, count=2, waypoint=record.waypoint, prev=prev
        )
        lines.append(text + b"}")
    return lines


def test_whatever_is_referred_to_is_written_out_byte_for_byte(thorough: bool) -> None:
    """Generated values: equal ones in the patch, some that only look so."""
    source = random.Random(7)
    shared = 0
    for _ in range(2000 if thorough else 200):
        values = [_value(source, 3) for _ in range(6)]
        data = orjson.dumps([["c", source.choices(values, k=3)], source.choice(values)])
        ops = [Op("add", f"/{n}", orjson.dumps(value)) for n, value in enumerate(values[:4])]
        ops.insert(1, Op("remove", "/gone", b""))
        found = referring.refer(data, ops)
        if found is None:
            continue
        shared += 1
        patch = [
            {"op": op.op, **({"value": orjson.loads(op.value)} if op.value else {})} for op in ops
        ]
        entry = Record(
            {"seq": 1, "kind": "entry", "waypoint": 1, "in": 2}, b'"data":' + found, "", 0
        )
        head = {"seq": 2, "kind": "waypoint", "waypoint": 2, "base": 1}
        point = Record(head, b'"patch":' + orjson.dumps(patch), "", 0)
        [out, _] = referring.written_out([entry, point])
        assert out.member("data") == data
    assert shared > 50


def _value(source: random.Random, levels: int) -> Any:
    kind = source.randrange(6 if levels else 3)
    if kind == 0:
        return source.choice([None, True, 1.5, -0.0, 10**17, 1e22, ""])
    if kind < 3:
        return source.choice(['é\\"[1,2]', "x", "a,b", "\u2028{}"]) * source.randrange(1, 40)
    if kind < 5:
        return [_value(source, levels - 1) for _ in range(source.randrange(5))]
    return {f"k{n}": _value(source, levels - 1) for n in range(source.randrange(5))}


def test_a_torn_append_takes_both(tmp_path: Path) -> None:
    """Cut anywhere in the append, neither the entry nor its waypoint is there."""
    store = FileStore(tmp_path / "whole")
    grow(store, 4)
    path = tmp_path / "whole" / RUN / "journal-1.jsonl"
    data = path.read_bytes()
    begin = data.rindex(b"\n", 0, data.rindex(b"\n", 0, len(data) - 1)) + 1
    for at in range(begin, len(data) - 2, 97):
        cut = tmp_path / f"cut-{at}"
        shutil.copytree(tmp_path / "whole" / RUN, cut / RUN, symlinks=True)
        (cut / RUN / "waypoint-4.md").unlink()
        (cut / RUN / "journal-1.jsonl").write_bytes(data[:at])
        found = FileStore(cut)
        assert entries(found) == {n: written(n) for n in range(1, 4)}
        assert load(RUN, store=found)["n"] == 3
