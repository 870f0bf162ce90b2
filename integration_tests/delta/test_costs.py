"""What comparing, joining and applying cost where lists are long or operations are many."""

from __future__ import annotations

import copy
import random
import tracemalloc
from typing import Any

import orjson
import pytest

from caravanserai_core import delta, patching
from caravanserai_core.records import Malformed
from integration_tests.codec.values import same
from integration_tests.delta.judge import Refused, patched

ODD: list[Any] = ["a,b", '"', "\\", '\\"', '","', "],[", "é\n", {}, [], {"a": ["]", {"b": "}"}]}]
ODD += [None, True, 1, 1.0, 0.0, -0.0, False, 0, [[[[[[[[1, 2]]]]], 3]]], {"a": 1, "b": 2}]
ODD += [{"b": 2, "a": 1}]
"""Items whose bytes look like the edges of items, and ones that Python takes for equal."""


def patch_of(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the patch between two states that are kept by members."""
    ops, _ = delta.diff(delta.of_tree(old), delta.of_tree(new))
    patch: list[dict[str, Any]] = orjson.loads(patching.encode_ops(ops))
    return patch


@pytest.mark.parametrize("where", ["front", "middle", "back"])
@pytest.mark.parametrize("edit", ["insert", "remove", "replace"])
def test_one_edit_in_a_long_list_takes_little_memory(where: str, edit: str) -> None:
    """The items that stayed the same are not kept one by one."""
    items = [f"item {i} " + "z" * 40 for i in range(60_000)]
    at = {"front": 1, "middle": 30_000, "back": 59_998}[where]
    after = list(items)
    after[at : at + (edit != "insert")] = [] if edit == "remove" else ["new"]
    old, new = {"l": orjson.dumps(items)}, {"l": orjson.dumps(after)}
    tracemalloc.start()
    ops, _ = delta.diff(old, new)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(op.op, op.path) for op in ops] == [
        ("add" if edit == "insert" else edit, f"/l/{at}"),
    ]
    assert peak < 1.5 * len(new["l"])


@pytest.mark.parametrize("shift", [1, 100])
def test_window_over_a_long_list_takes_bounded_memory(shift: int) -> None:
    """Where items have to be told apart, they are held once, and tight.

    The decoder reserves, and does not use, twelve times the length of what it decodes.
    """
    items = [f"item {i} " + "z" * 40 for i in range(60_000)]
    after = [*items[shift:], "new"]
    old, new = {"l": orjson.dumps(items)}, {"l": orjson.dumps(after)}
    tracemalloc.start()
    ops, _ = delta.diff(old, new)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [op.op for op in ops] == ["remove"] * shift + ["add"]
    assert peak < 16 * len(new["l"])


def test_kept_bytes_are_tight() -> None:
    """The encoder's spare room, about a page for each value, is not kept with a shadow."""
    tree = {f"k{i}": i for i in range(10_000)}
    data = orjson.dumps(tree)
    for make in (
        lambda: delta.of_tree(tree),
        lambda: delta.opened(data),
        lambda: delta.shadow(tree, lambda part, _like=b"": orjson.dumps(part), lambda part: part),
        lambda: delta._items(orjson.dumps(list(tree))),
    ):
        before = resident()
        kept = make()
        assert len(kept) == 10_000
        assert resident() - before < 10_000 * 400


def resident() -> int:
    """Bytes of memory that the process has: spare room of the encoder is not traced."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except FileNotFoundError:
        pytest.skip("the memory of a process is not told here")


@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
@pytest.mark.parametrize("seed", range(3))
def test_edges_of_items_are_found(
    seed: int, chunk: int, thorough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the items hold: the differing part begins and ends between two items."""
    monkeypatch.setattr(delta, "_CHUNK", chunk)
    rng = random.Random(seed)
    for _ in range(20_000 if thorough else 1500):
        old = [rng.choice(ODD) for _ in range(rng.randrange(12))]
        old.insert(rng.randrange(len(old) + 1), "p" * rng.choice([0, 300]))
        new = list(old)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(new) + 1)
            new[at : at + rng.randrange(3)] = rng.choices(ODD, k=rng.randrange(3))
        head, begin, end = delta._differing(orjson.dumps(old), orjson.dumps(new))
        assert old[:head] == new[:head]
        assert len(orjson.loads(b"[%b]" % orjson.dumps(old)[begin:end])) <= len(old) - head
        patch = patch_of({"l": old}, {"l": new})
        assert same(patched({"l": old}, patch), {"l": new})
        assert same(patching.apply(copy.deepcopy({"l": old}), patch), {"l": new})


def test_join_looks_at_each_path_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Joining n operations with m earlier ones does not compare each with each."""
    looks = 0
    parents = patching._parents

    def counted(path: str) -> Any:
        nonlocal looks
        for parent in parents(path):
            looks += 1
            yield parent

    monkeypatch.setattr(patching, "_parents", counted)
    values = {f"/items/k{i}/n": b"1" for i in range(5000)}
    ops = [patching.Op("replace", f"/items/k{i}/{'n' * (1 + i % 2)}", b"2") for i in range(5000)]
    ops += [patching.Op("replace", f"/items/x{i}", b"3") for i in range(5000)]
    joined = patching.join(values, ops)
    assert joined is not None
    assert len(joined) == 12_500
    assert looks <= 8 * (len(values) + len(ops))
    looks = 0
    covered = patching.join(
        values, [patching.Op("replace", f"/items/k{i}", b"{}") for i in range(5000)]
    )
    assert covered == {f"/items/k{i}": b"{}" for i in range(5000)}
    assert looks <= 8 * 10_000


def test_join_means_what_the_plain_rule_says() -> None:
    """It is None for a path below an earlier one, and drops earlier paths below a new one."""
    rng = random.Random(4)
    refused = 0
    for _ in range(2000):
        values: dict[str, bytes] = {}
        for _ in range(4):
            paths: list[str] = []
            for _ in range(3):
                path = "".join("/" + rng.choice(["a", "b", "ab"]) for _ in range(rng.randrange(4)))
                if not any(_above(p, path) or _above(path, p) or p == path for p in paths):
                    paths.append(path)
            joined = patching.join(values, [patching.Op("replace", path, b"1") for path in paths])
            if any(_above(old, path) for old in values for path in paths):
                assert joined is None
                refused += 1
                break
            kept = [old for old in values if not any(_above(path, old) for path in paths)]
            assert list(joined or {}) == kept + [path for path in paths if path not in kept]
            values = joined or {}
    assert refused > 100


def _above(path: str, other: str) -> bool:
    return other.startswith(path + "/")


@pytest.mark.parametrize("edit", ["window", "cut", "block"])
def test_thousands_of_moves_replace_the_list(edit: str) -> None:
    """No patch makes a plain reader move millions of items: the list is written whole."""
    items = [f"item {i:060}" for i in range(20_000)]
    new = {
        "window": [*items[10_000:], "new"],
        "cut": [*items[:100], *items[5100:]],
        "block": [*items[:100], *(str(i) for i in range(5000)), *items[100:]],
    }[edit]
    patch = patch_of({"l": items, "n": 1}, {"l": new, "n": 1})
    assert [(op["op"], op["path"]) for op in patch] == [("replace", "/l")]


def test_moves_that_are_cheap_stay_moves() -> None:
    """Few moves in a long list, many in a short one, and many at the end of a long one."""
    items = [f"item {i:060}" for i in range(20_000)]
    for old, new, count in (
        (items, [*items[200:], "new"], 201),
        (items[:2000], items[1000:2000], 1000),
        (items, items[:15_000], 5000),
        (items, [*items[:-1], "other", *(str(i) for i in range(3000))], 3001),
    ):
        patch = patch_of({"l": old, "n": 1}, {"l": new, "n": 1})
        assert len(patch) == count
        assert same(patching.apply({"l": list(old), "n": 1}, patch), {"l": new, "n": 1})


def test_runs_are_applied_as_slices() -> None:
    """Thousands of removals or insertions side by side, as old journals hold, are one step."""
    items = list(range(50_000))
    for patch, after in (
        ([{"op": "remove", "path": "/l/0"}] * 25_000, items[25_000:]),
        ([{"op": "remove", "path": "/l/7"}] * 25_000, items[:7] + items[25_007:]),
        (
            [{"op": "add", "path": f"/l/{7 + i}", "value": -i} for i in range(25_000)],
            items[:7] + [-i for i in range(25_000)] + items[7:],
        ),
    ):
        calls: list[int] = []
        run = patching._apply_run
        with pytest.MonkeyPatch.context() as context:
            context.setattr(
                patching, "_apply_run", lambda i, r, c=calls, go=run: (c.append(len(r)), go(i, r))
            )
            assert patching.apply({"l": list(items)}, patch) == {"l": after}
        assert calls == [25_000]


def test_runs_mean_what_single_operations_do() -> None:
    """Also where runs touch, change direction, run out of the list, or lead into an object."""
    rng = random.Random(5)
    refused = 0
    for _ in range(4000):
        tree: Any = {
            "l": list(range(rng.randrange(6))),
            "d": {"0": 1, "1": {"2": 3}},
            "m": [[0], [1]],
        }
        patch: list[dict[str, Any]] = []
        for _ in range(rng.randrange(1, 4)):
            above = rng.choice(["/l", "/l", "/l", "/d", "/d/1", "/m", "/m/0", "/m/1"])
            at, length = rng.randrange(4), rng.randrange(1, 4)
            if rng.random() < 0.5:
                patch += [{"op": "remove", "path": f"{above}/{at}"}] * length
            else:
                patch += [
                    {"op": "add", "path": f"{above}/{at + i}", "value": [i]} for i in range(length)
                ]
        try:
            after = patched(tree, patch)
        except Refused:
            refused += 1
            with pytest.raises(Malformed):
                patching.apply(tree, patch)
        else:
            assert same(patching.apply(tree, patch), after)
    assert 400 < refused < 3600
