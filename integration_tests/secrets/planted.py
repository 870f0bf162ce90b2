"""Made-up secrets, states that hold them, and a search that owes nothing to the project."""

from __future__ import annotations

import base64
import json
import random
import string
import urllib.parse
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

KEY = "sk-planted-" + "Zq7Lw2Xv9Rt4"
ENVIRONMENT = {
    "PLANTED_API_KEY": KEY,
    "PLANTED_TOKEN": "tok/" + "aB3+dE6=gH9" + "kLmNoP",
    "PLANTED_DSN": "postgres://app:" + "pa%2Fss" + "W0rd!" + "@db.example:5432/main?x=1",
}
DECLARED = {
    "odd": 'quo"te\\back\nline\u00e9\u6f22' + "zZ",
    "inner": "W0rdless" + "Zq7L",
    "longer": KEY + "-suffix",  # holds another one
    "digits": "90210" + "77345",
}
PASSWORDS = ["pa%2FssW0rd!", "pa/ssW0rd!"]
"""What stands in the URL, and what it means."""

VALUES = [*ENVIRONMENT.values(), *DECLARED.values(), *PASSWORDS]


@dataclass
class Held:
    """A class of the program with a secret in it."""

    label: str
    inside: Any


class Model(pydantic.BaseModel):
    """The same, with pydantic, and with fields that it does not declare."""

    model_config = pydantic.ConfigDict(extra="allow")
    token: str
    wrapped: pydantic.SecretStr | None = None
    wrapped_bytes: pydantic.SecretBytes | None = None


def state(rng: random.Random, depth: int = 4) -> Any:
    """Return a random state; most of them hold secrets."""
    kind = rng.randrange(14) if depth else rng.randrange(4)
    few = range(rng.randrange(4))
    if kind < 3:
        return text(rng)
    if kind == 3:
        return rng.choice([None, True, 3, -(2**70), 2.5, b"\x00plain", "", "plain"])
    if kind == 4:
        return [state(rng, depth - 1) for _ in few]
    if kind == 5:
        return tuple(state(rng, depth - 1) for _ in few)
    if kind == 6:
        return {text(rng) for _ in few}
    if kind == 7:
        return Held(text(rng), state(rng, depth - 1))
    if kind == 8:
        extra = {rng.choice([*VALUES, "more"]): text(rng)}
        return Model(token=text(rng), wrapped=rng.choice(VALUES), **extra)
    if kind == 9:
        return Model(token="t", wrapped_bytes=rng.choice(VALUES).encode())
    if kind == 10:
        return rng.choice([deque, OrderedDict.fromkeys, frozenset])([text(rng) for _ in few])
    if kind == 11:
        return {(text(rng), 1): state(rng, depth - 1)}
    return {text(rng): state(rng, depth - 1) for _ in few}


def text(rng: random.Random) -> str:
    """Return a text that holds none, one or several secrets, in JSON or not."""
    value = rng.choice(VALUES)
    filler = "".join(
        rng.choices(string.ascii_letters + ' "\\\n\u00fc\U0001f511', k=rng.randrange(9))
    )
    return rng.choice(
        [
            value,
            value,
            f"Authorization: Bearer {value}",
            f"{filler}{value}{filler}{rng.choice(VALUES)}",
            value + value,
            json.dumps({"key": value, "filler": filler}),
            json.dumps([value], ensure_ascii=False),
            json.dumps(json.dumps({value: 1})),
            json.dumps(json.dumps([value], ensure_ascii=False), ensure_ascii=False),
            "\ud83d " + value,
            filler,
            "$secret",
            "step",
        ]
    )


def forms(value: str) -> Iterator[bytes]:
    """Yield the forms in which a value may stand in a file."""
    for ascii_ in (False, True):
        form = value
        for _ in range(4):
            yield form.encode()
            form = json.dumps(form, ensure_ascii=ascii_)[1:-1]
    data = value.encode()
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + data)
        core = coded[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
        yield core
        yield core.replace(b"+", b"-").replace(b"/", b"_")
    for safe in ("", "/"):
        yield urllib.parse.quote(value, safe=safe).encode()


def hits(folder: Path, values: list[str] | None = None) -> list[str]:
    """Return where secrets stand in the files of a folder, and in their names."""
    needles = {form for value in values or VALUES for form in forms(value)}
    found = []
    for path in sorted(folder.rglob("*")):
        data = b"" if path.is_dir() or path.is_symlink() else path.read_bytes()
        name = str(path.relative_to(folder))
        found += [f"{name}: {form!r}" for form in needles if form in data or form in name.encode()]
    return found
