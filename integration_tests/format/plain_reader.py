"""A reader of journals, written from docs/format.md alone: states and entries as JSON."""

import hashlib
import json
import re
from pathlib import Path

PREFIX = re.compile(rb'\{"len":\[(\d+),(\d+)\],')
SUFFIX = re.compile(rb',"sum":"([0-9a-f]{32})"(?:,"loc":\d+)?\}')


def read_line(line):
    """Return (head, body's name, body's bytes, sum), or None if the line is no record."""
    if not (match := PREFIX.match(line)):
        return None
    head = line[match.end() : match.end() + int(match[1])]
    rest = line[match.end() + len(head) :]
    size = int(match[2])
    body = rest[1 : 1 + size] if size else b""
    if not (end := SUFFIX.fullmatch(rest[1 + size :] if size else rest)):
        return None
    fields = json.loads(b"{" + head + b"}")
    covered = head + b"," + body if 0 < size <= 2048 else head
    if hashlib.sha256(covered).hexdigest()[:32] != end[1].decode() or (
        size > 2048 and hashlib.sha256(body).hexdigest() != fields["body_sha256"]
    ):
        return None
    name, _, value = body.partition(b":")
    return fields, name.strip(b'"').decode(), value, end[1].decode()


def read_records(folder):
    """Yield the records of a run that count, checking the chain."""
    number, before, seq = 1, "", 0
    while (path := Path(folder, f"journal-{number}.jsonl")).exists():
        pending = []
        for line in path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines():
            if (record := read_line(line)) is None:
                break  # a torn tail; telling it from damage is left out here
            first, count = record[0].get("app", [record[0]["seq"], 1])
            pending.append(record)
            if record[0]["seq"] == first + count - 1:
                for head, name, value, total in pending:
                    if anchor := head.get("anchor"):  # the end of what this journal replaced
                        before, seq = anchor["sum"], anchor["seq"]
                    assert (head["prev"], head["seq"]) == (before, seq + 1), "the chain is broken"
                    before, seq = total, head["seq"]
                    yield head, name, value
                pending = []
        number += 1


def patched(tree, patch):
    """Apply a JSON Patch with add, replace and remove."""
    for op in patch:
        *path, last = [t.replace("~1", "/").replace("~0", "~") for t in op["path"].split("/")]
        parent = tree = {"": tree}
        for token in path:
            parent = parent[int(token) if isinstance(parent, list) else token]
        if isinstance(parent, list):
            at = len(parent) if last == "-" else int(last)
            parent[at : at + (op["op"] != "add")] = [op["value"]] if "value" in op else []
        elif op["op"] == "remove":
            del parent[last]
        else:
            parent[last] = op["value"]
        tree = tree[""]
    return tree


def read_states(folder):
    """Return {waypoint number: its state as JSON}."""
    states = {}
    for head, name, value in read_records(folder):
        if head["kind"] == "waypoint":
            tree = json.loads(value)
            if name == "patch":
                tree = patched(json.loads(json.dumps(states[head["base"]])), tree)
            states[head["waypoint"]] = tree
    return states


def read_entries(folder):
    """Return the data of all entries as JSON."""
    records = list(read_records(folder))
    patches = {h["waypoint"]: json.loads(v) for h, name, v in records if name == "patch"}

    def whole(node, ops):
        if isinstance(node, list):
            return [whole(item, ops) for item in node]
        return ops[node["$in"]]["value"] if isinstance(node, dict) and "$in" in node else node

    found = [(h, json.loads(v)) for h, name, v in records if h["kind"] == "entry" and name]
    return [whole(data, patches[h["in"]]) if "in" in h else data for h, data in found]
