"""Threads, namespaces and checkpoints by whatever name, and lists of them as LangGraph's own."""

# ruff: noqa: E402

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from integration_tests.support import require

require("langgraph")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from caravanserai.langgraph import WaypointSaver
from caravanserai_core.errors import InvalidRunId, UsageError
from caravanserai_core.stores import FileStore, MemoryStore
from integration_tests.langgraph.graphs import builder_of, config, graph_of, says

HOSTILE = [
    *("..", "../..", "../../../../tmp/x", "/etc/passwd", "a/b", "a\\b", ".", "~", "$HOME", "%2e"),
    *("nul\0byte", "new\nline", "\x1b[31mred", "\u202egnp.exe", " ", "x" * 10_000, "CON", "aux.md"),
    *("🏕️", "ünïcödé", "Straße", "STRASSE", "a|b:c", "int:7", "str:int:7", "str:str:int:-1"),
    *("' OR '1'='1", "*", "journal-1.jsonl", ".gitignore", "latest.md", "@-", "RUN@3"),
]
HALVES = ["\ud800", "x\udfffy"]
"""Halves of a surrogate pair: no UTF-8 text."""


def put(
    saver: Any, thread_id: Any, checkpoint_id: str, parent: str | None = None, **more: Any
) -> Any:
    version = {"v": f"{len(checkpoint_id):010}.{checkpoint_id}"}
    checkpoint: Any = {
        **empty_checkpoint(),
        "id": checkpoint_id,
        "channel_values": {"v": more.pop("value", checkpoint_id)},
        "channel_versions": version,
    }
    where = config(thread_id, checkpoint_ns=more.pop("ns", ""))
    if parent is not None:
        where["configurable"]["checkpoint_id"] = parent
    metadata: Any = {"source": "input", "step": -1, "parents": {}, **more}
    return saver.put(where, checkpoint, metadata, version)


def value(saver: Any, where: Any) -> Any:
    found = saver.get_tuple(where)
    return None if found is None else found.checkpoint["channel_values"]["v"]


# ---------------------------------------------------------------------- threads


def test_hostile_thread_ids_are_threads_of_their_own_inside_of_the_folder(tmp_path: Path) -> None:
    names = HOSTILE + HALVES
    saver = WaypointSaver(tmp_path / "in" / "store")
    for number, name in enumerate(names):
        put(saver, name, "1", value=number)

    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["store"]
    again = WaypointSaver(tmp_path / "in" / "store")
    for number, name in enumerate(names):
        found = again.get_tuple(config(name))
        assert found is not None
        assert found.checkpoint["channel_values"]["v"] == number
        assert found.config["configurable"]["thread_id"] == name
    listed = {found.config["configurable"]["thread_id"] for found in again.list(None)}
    assert listed == set(names)
    for name in names:
        again.delete_thread(name)
    assert list(again.list(None)) == []


def test_hostile_namespaces_are_lines_of_their_own(tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    put(saver, "t", "0")
    for number, ns in enumerate(HOSTILE):
        put(saver, "t", "1", value=number, ns=ns)

    again = WaypointSaver(tmp_path / "store")
    for number, ns in enumerate(HOSTILE):
        assert value(again, config(checkpoint_ns=ns)) == number
        [found] = again.list(config(checkpoint_ns=ns))
        assert found.config["configurable"]["checkpoint_ns"] == ns
    assert value(again, config()) == "0"


def test_a_thread_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRunId, match="the empty string"):
        put(WaypointSaver(tmp_path / "store"), "", "1")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("name", [True, None, 1.5, b"t", ("t",), object()])
def test_a_thread_id_whose_type_could_not_be_told_later_is_refused(
    name: object, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="a thread_id is a string, an int or a UUID"):
        put(WaypointSaver(tmp_path / "store"), name, "1")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("where", [{}, {"configurable": {}}, {"configurable": None}, None, 7])
def test_a_config_without_a_thread_is_refused_in_a_sentence(where: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a thread is named by"):
        WaypointSaver(tmp_path / "store").get_tuple(where)


@pytest.mark.parametrize("key", ["checkpoint_ns", "checkpoint_id"])
@pytest.mark.parametrize("bad", [7, b"x", ["x"], *HALVES])
def test_a_namespace_or_a_checkpoint_id_that_is_no_text_is_refused(
    key: str, bad: Any, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"checkpoint_(ns|id)"):
        WaypointSaver(tmp_path / "store").get_tuple(config(**{key: bad}))


def test_an_int_and_its_text_are_two_threads(tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    for name in (7, "7", -7, "-7", "int:7"):
        put(saver, name, "1", value=repr(name))

    again = WaypointSaver(tmp_path / "store")
    for name in (7, "7", -7, "-7", "int:7"):
        [found] = again.list(config(name))
        assert found.config["configurable"]["thread_id"] == name
        assert found.checkpoint["channel_values"]["v"] == repr(name)


def test_a_graph_makes_the_text_of_an_int_before_its_saver_sees_it(tmp_path: Path) -> None:
    # LangGraph's rule (1.2.24), of which the saver's own methods know nothing.
    saver = WaypointSaver(tmp_path / "store")
    graph = graph_of(saver, {"a": says("a")})

    graph.invoke({"log": ["int"]}, config(7))

    assert graph.invoke({"log": ["text"]}, config("7"))["log"] == ["int", "a", "text", "a"]
    assert saver.get_tuple(config(7)) is None


def test_a_uuid_and_its_text_are_one_thread(tmp_path: Path) -> None:
    graph = graph_of(WaypointSaver(tmp_path / "store"), {"a": says("a")})
    name = uuid.uuid4()

    graph.invoke({"log": ["1"]}, config(name))
    found = graph.invoke({"log": ["2"]}, config(str(name)))

    assert found["log"] == ["1", "a", "2", "a"]
    assert graph.get_state(config(name)).values["log"] == ["1", "a", "2", "a"]


# ---------------------------------------------------------------------- metadata


def test_no_secret_of_the_configuration_reaches_the_disk(tmp_path: Path) -> None:
    inner = builder_of({"x": says("x"), "ask": lambda state: {"log": [interrupt("?")]}}).compile()
    saver = WaypointSaver(tmp_path / "store", metadata_keys=["tenant"])
    graph = graph_of(saver, {"a": says("a"), "inner": inner})
    given = config(api_key="sk-SECRET", tenant="acme", user_id="u7", other="not-asked-for")
    given["metadata"] = {"topic": "weather"}

    graph.invoke({"log": []}, given)
    graph.update_state(given, {"log": ["up"]})

    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    text = b"\n".join(path.read_bytes() for path in files)
    assert b"weather" in text
    assert b"acme" in text
    assert b"SECRET" not in text
    assert b"api_key" not in text
    assert b"not-asked-for" not in text
    found = list(saver.list(None, filter={"tenant": "acme", "user_id": "u7", "topic": "weather"}))
    assert len(found) == len(list(saver.list(None)))


KEYS = ["x') OR '1'='1", "$.source", "source'--", "", "__proto__", "a.b", '"', "\0", "source\n"]


@pytest.mark.parametrize("key", KEYS)
def test_a_hostile_key_of_a_filter_is_a_key_and_nothing_else(key: str, tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    put(saver, "t", "1")
    put(saver, "t", "2", **{key: "here"})

    assert [one.checkpoint["id"] for one in saver.list(None, filter={key: "here"})] == ["2"]
    assert list(saver.list(None, filter={key: "x' OR '1'='1"})) == []
    assert list(saver.list(None, filter={key: {"$ne": 1}})) == []


# ---------------------------------------------------------------------- writes, forks


def test_of_ordinary_writes_the_first_counts_and_of_special_ones_the_last(tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    where = put(saver, "t", "1")
    for number in range(3):
        saver.put_writes(where, [("v", number), ("__resume__", number)], "task")
        saver.put_writes(where, [("__interrupt__", number)], "task")

    for one in (saver, WaypointSaver(tmp_path / "store")):
        found = one.get_tuple(config())
        assert found is not None
        assert sorted(found.pending_writes or ()) == [
            *[("task", "__interrupt__", 2), ("task", "__resume__", 2), ("task", "v", 0)]
        ]


def test_writes_may_come_before_their_checkpoint(tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    saver.put_writes(config(checkpoint_ns="", checkpoint_id="1"), [("v", 1)], "early")
    put(saver, "t", "1")

    for one in (saver, WaypointSaver(tmp_path / "store")):
        found = one.get_tuple(config())
        assert found is not None
        assert found.pending_writes == [("early", "v", 1)]


def test_writes_that_come_while_their_checkpoint_is_on_its_way_are_found(tmp_path: Path) -> None:
    """A quick task is done before the disk has the checkpoint that it belongs to."""
    store = FileStore(tmp_path / "store")
    saver = WaypointSaver(store)
    thread = saver.thread("t")
    checkpoint: Any = {**empty_checkpoint(), "id": "1"}
    queued = thread.put("", None, checkpoint, {"source": "loop", "step": 0})
    waiting, _ = thread.put_writes("", "1", [("v", 1)], "quick", "")
    queued.result()
    waiting.result(0, sync=True)

    for one in (saver, WaypointSaver(tmp_path / "store")):
        found = one.get_tuple(config())
        assert found is not None
        assert found.pending_writes == [("quick", "v", 1)]
    recent = store.recent("t")
    assert recent is not None
    assert [record.head["name"] for record in recent.since] == ["writes"]


def test_an_update_of_an_old_checkpoint_is_a_branch_and_the_old_one_stays(tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    graph = graph_of(saver, {"a": says("a"), "b": says("b")})
    graph.invoke({"log": ["in"]}, config())
    history = list(graph.get_state_history(config()))
    old = next(state for state in history if state.next == ("b",))

    made = graph.update_state(old.config, {"log": ["branch"]})

    branch = graph.get_state(made)
    assert branch.values["log"] == ["in", "a", "branch"]
    assert branch.parent_config == old.config
    assert graph.get_state(config()).config == branch.config
    assert graph.get_state(old.config) == old
    assert [state.config for state in graph.get_state_history(config())][1:] == [
        state.config for state in history
    ]
    assert graph.invoke(None, made)["log"] == ["in", "a", "branch", "b"]


def test_branches_never_share_a_version(tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    graph = graph_of(saver, {"a": says("a"), "b": says("b")})
    graph.invoke({"log": ["in"]}, config())
    for old in list(graph.get_state_history(config())):
        if old.next:
            graph.invoke(None, old.config)

    seen: dict[str, str] = {}
    for found in saver.list(config()):
        for channel, version in found.checkpoint["channel_versions"].items():
            values = found.checkpoint["channel_values"]
            shown = repr(values.get(channel, "none"))
            assert seen.setdefault(f"{channel} {version}", shown) == shown


# ---------------------------------------------------------------------- lists, against LangGraph's

THREADS = ["a", "b"]
SPACES = ["", "n", "n|m"]
IDS = [f"{number:02}" for number in range(8)]
CHANNELS = ["v", "w", "__error__", "__interrupt__", "__resume__", "__scheduled__"]

puts = st.tuples(
    *(st.sampled_from(THREADS), st.sampled_from(SPACES), st.sampled_from(IDS)),
    st.none() | st.sampled_from(IDS),
    st.fixed_dictionaries(
        {"source": st.sampled_from(["update", "fork"]), "step": st.integers(0, 2)},
        optional={"tag": st.sampled_from(["x", "y"]), "run_id": st.sampled_from(["r", "s"])},
    ),
)
writes = st.tuples(
    *(st.sampled_from(THREADS), st.sampled_from(SPACES), st.sampled_from(IDS)),
    st.lists(st.tuples(st.sampled_from(CHANNELS), st.integers(0, 9)), max_size=3),
    st.sampled_from(["t1", "t2"]),
)
queries = st.fixed_dictionaries(
    {
        "thread": st.none() | st.sampled_from(THREADS),
        "ns": st.none() | st.sampled_from(SPACES),
        "id": st.none() | st.sampled_from(IDS),
        "before": st.none() | st.sampled_from(IDS),
        "limit": st.none() | st.integers(0, 4),
        "filter": st.none()
        | st.dictionaries(
            st.sampled_from(["source", "step", "tag", "run_id", "none"]),
            st.sampled_from(["update", "fork", 0, 1, "x", "y", "r", None]),
            max_size=2,
        ),
    }
)


def shown(found: Any) -> Any:
    parent = found.parent_config
    return (
        *(found.config["configurable"][key] for key in ("thread_id", "checkpoint_ns")),
        *(found.checkpoint["id"], found.checkpoint["channel_values"]),
        found.metadata,
        parent and parent["configurable"]["checkpoint_id"],
        sorted(found.pending_writes),
    )


def ask(saver: Any, query: dict[str, Any]) -> list[Any]:
    where: Any = None
    if query["thread"] is not None:
        where = config(query["thread"])
        for key, name in (("ns", "checkpoint_ns"), ("id", "checkpoint_id")):
            if query[key] is not None:
                where["configurable"][name] = query[key]
    before = config("a", checkpoint_id=query["before"]) if query["before"] is not None else None
    found = saver.list(where, filter=query["filter"], before=before, limit=query["limit"])
    return [shown(one) for one in found]


@given(st.lists(puts | writes, max_size=12), st.lists(queries, min_size=1, max_size=6))
def test_lists_hold_what_the_saver_of_langgraph_lists(steps: list[Any], asked: list[Any]) -> None:
    store = MemoryStore()
    mine, reference = WaypointSaver(store), InMemorySaver()
    there: set[tuple[str, str, str]] = set()
    for number, (thread, ns, checkpoint_id, *rest) in enumerate(steps):
        for saver in (mine, reference):
            if isinstance(rest[0], list):
                where = config(thread, checkpoint_ns=ns, checkpoint_id=checkpoint_id)
                saver.put_writes(where, rest[0], rest[1], rest[1])
            elif (thread, ns, checkpoint_id) not in there:
                parent, metadata = rest
                put(saver, thread, checkpoint_id, parent, ns=ns, value=number, **metadata)
        if not isinstance(rest[0], list):
            there.add((thread, ns, checkpoint_id))

    for one in (mine, WaypointSaver(store)):
        for query in asked:
            found, expected = ask(one, query), ask(reference, {**query, "limit": None})
            if query["limit"] is None:
                assert sorted(found, key=repr) == sorted(expected, key=repr)
            else:
                assert len(found) == min(query["limit"], len(expected))
                assert all(row in expected for row in found)
            for thread, ns in {(row[0], row[1]) for row in found}:
                rows = [row for row in found if row[:2] == (thread, ns)]
                assert rows == [row for row in expected if row[:2] == (thread, ns)][: len(rows)]


def test_lists_are_ordered_by_id_in_files_too(tmp_path: Path) -> None:
    saver = WaypointSaver(FileStore(tmp_path / "store"))
    for checkpoint_id in ("05", "01", "09", "03"):
        put(saver, "t", checkpoint_id)

    again = WaypointSaver(FileStore(tmp_path / "store"))
    assert [one.checkpoint["id"] for one in again.list(config())] == ["09", "05", "03", "01"]
    assert value(again, config()) == "03", "the newest is the one that was stored last"


def test_a_thread_with_the_id_zero_is_one_thread(tmp_path: Path) -> None:
    """LangGraph takes an id that is false for none, and hands it over in both ways."""
    graph = graph_of(WaypointSaver(tmp_path), {"a": says("a")})
    for said in ("one", "two"):
        graph.invoke({"log": [said]}, config(0), durability="sync")
    assert graph.get_state(config(0)).values["log"] == ["one", "a", "two", "a"]
    assert graph.get_state(config("0")).values == graph.get_state(config(0)).values
    assert {one.config["configurable"]["thread_id"] for one in graph.checkpointer.list(None)} == {
        "0"
    }
