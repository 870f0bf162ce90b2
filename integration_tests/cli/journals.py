"""Changing a journal by hand, with what docs/format.md says and nothing of the core."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LINE = re.compile(rb'\{"len":\[(\d+),(\d+)\],(.*),"sum":"([0-9a-f]{32})"(,"loc":\d+)?\}', re.S)


def reseal(journal: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the data of the `open` record and seal the whole chain again around it."""
    lines: list[bytes] = []
    prev, shift = b"", 0
    for number, line in enumerate(journal.read_bytes().splitlines()):
        match = _LINE.fullmatch(line)
        assert match is not None, line
        head_size, body_size = int(match[1]), int(match[2])
        head = match[3][:head_size]
        body = match[3][head_size + 1 :] if body_size else b""
        if number == 0:
            data = change(json.loads(body.removeprefix(b'"data":')))
            body = b'"data":' + json.dumps(data, separators=(",", ":")).encode()
        head = re.sub(rb'"prev":"[0-9a-f]*"', b'"prev":"%b"' % prev, head)
        covered = head
        if 0 < len(body) <= 1024:
            covered += b"," + body
        elif body:
            digest = hashlib.sha256(body).hexdigest().encode()
            head = re.sub(rb'"body_sha256":"[0-9a-f]*"', b'"body_sha256":"%b"' % digest, head)
            covered = head
        prev = hashlib.sha256(covered).hexdigest()[:32].encode()
        loc = match[5] or b""
        if loc and shift and loc != b',"loc":0':
            loc = b',"loc":%d' % (int(loc[7:]) + shift)
        comma = b"," if body else b""
        sizes = (len(head), len(body))
        sealed = b'{"len":[%d,%d],%b%b%b,"sum":"%b"%b}' % (*sizes, head, comma, body, prev, loc)
        if number == 0:
            shift = len(sealed) - len(line)
        lines.append(sealed)
    journal.write_bytes(b"\n".join(lines) + b"\n")
