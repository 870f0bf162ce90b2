"""What a subclass gives, and what all store tests use."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from caravanserai_core.stores.base import Bad

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Listed, Store, Tail
    from caravanserai_core.testing._writer import Decide

_HINT = re.compile(rb'(?:,"loc":\d+)?\}$')


class Hooks:
    """What a subclass of `StoreTests` gives, beside the fixture `store`."""

    def reopen(self, store: Store) -> Store:
        """Return the same runs as another process would open them."""
        raise NotImplementedError

    def raw_lines(self, store: Store, run_id: str) -> list[bytes]:
        """Return the lines of a run as they lie in the back end, without line ends."""
        raise NotImplementedError

    def raw_runs(self, store: Store) -> int:
        """Return how many runs the back end holds."""
        raise NotImplementedError


def raises(kind: type[BaseException]) -> AbstractContextManager[Any]:
    """Expect an error. pytest is imported here: installing the package does not install it."""
    import pytest

    return pytest.raises(kind)


def refuse(problem: BaseException) -> Decide:
    """Return a decision that gives an append up."""

    def decide(_tail: Tail | None, _news: list[Record] | None) -> None:
        raise problem

    return decide


def refuse_news(problem: BaseException) -> Decide:
    """Return a decision that gives an append up unless the writer is told that nothing is new.

    A store may seal against what the writer knows before it compares.
    """

    def decide(_tail: Tail | None, news: list[Record] | None) -> None:
        if news != []:
            raise problem

    return decide


def records(store: Store, run_id: str = "run", *, bodies: bool = True) -> list[Record]:
    """Return the records of a run; anything else in its journal fails the test."""
    found: list[Record] = []
    for item in store.scan(run_id, bodies=bodies):
        assert not isinstance(item, Bad), item
        found.append(item)
    return found


def end(store: Store, run_id: str = "run") -> Tail:
    """Return the end of a run that exists."""
    recent = store.recent(run_id)
    assert recent is not None
    return recent.tail


def check_chain(found: list[Record]) -> None:
    """Check that each record names the sum of the one before it."""
    assert [r.head["prev"] for r in found] == ["", *(r.sum for r in found[:-1])]


def run_id_of(listed: Listed) -> str:
    """Return the exact name of a run from its list entry."""
    assert listed.opening is not None, listed
    assert listed.opening.body is not None, listed
    return str(json.loads(b"{%b}" % listed.opening.body)["data"]["run_id"])


def without_hint(line: bytes) -> bytes:
    """Return a line up to its sum, as it was sealed."""
    return _HINT.sub(b"", line)
