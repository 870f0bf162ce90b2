"""Versions of a program's state: which schema a waypoint was written in, and the way to today's.

A program declares the schema it writes and one function for each step that leads there:

    @resumable(schema=3, migrations=[from_1_to_2, from_2_to_3])

The recorded state is never changed. It goes through the steps when it is read, and the next
waypoint is written in the new schema.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, reading
from caravanserai_core.errors import SchemaMismatch, UnserialisableState, UsageError
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

    Migrations = Sequence[Callable[[Any], Any]]


class Schema(NamedTuple):
    """What a program declares of its states.

    Attributes:
        number: the schema in which it writes, from 1.
        steps: the last one leads to `number`, each one before it to one less.
    """

    number: int = 1
    steps: tuple[Callable[[Any], Any], ...] = ()

    @property
    def oldest(self) -> int:
        """The lowest schema that the steps lead on from."""
        return self.number - len(self.steps)


FIRST = Schema()
"""What a program writes that declares nothing."""


def declared(schema: int | None, migrations: Migrations = ()) -> Schema | None:
    """Read what a program declares; None where it declares nothing.

    Args:
        schema: the schema in which it writes; by default one more than there are migrations.
        migrations: one function for each step, the last one leads to `schema`. Each is given the
            state of the step before and returns that of the next. An object that no longer fits
            its type comes as a `codec.Unfit`.

    Raises:
        UsageError: they do not fit together.
    """
    given: object = migrations
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        more = f": migrations=[{_name(given)}]" if callable(given) else ""
        raise UsageError(f"migrations= takes a list of functions{more}")
    steps = tuple(migrations)
    if not all(map(callable, steps)):
        raise UsageError("migrations= takes functions, one for each step from schema to schema")
    if schema is None:
        return Schema(1 + len(steps), steps) if steps else None
    if type(schema) is not int or schema < 1:
        raise UsageError(f"schema= takes a number from 1, not {one_line(repr(schema), 40)}")
    if len(steps) >= schema:
        raise UsageError(
            f"schema={schema} and {len(steps)} migrations do not fit together: the last one leads "
            f"to schema {schema}, and there is none below 1"
        )
    return Schema(schema, steps)


def schema_of(head: dict[str, Any]) -> int:
    """Return the schema that the writer of a waypoint declared, given the waypoint's head."""
    found = head.get("schema")
    return found if type(found) is int else 1


def decode(
    chain: list[Record], number: int, store: Store, run_id: str, wanted: Schema = FIRST
) -> Any:
    """Rebuild and decode the state of a waypoint, and lead it to the schema of the program.

    Args:
        chain: see `reading.rebuild`.
        number: the waypoint wanted.
        store: where the run lives.
        run_id: its name.
        wanted: what the program declares.

    Raises:
        SchemaMismatch: there is no way from the schema of the waypoint to that of the program, a
            step failed, or what came of the steps cannot be kept.
        JournalDamaged, UnknownType: see `reading.decode`.
    """
    head = next(r.head for r in chain if r.kind == "waypoint" and r.waypoint == number)
    stored = schema_of(head)
    where = f"run {one_line(run_id)}, waypoint {number}"
    check(stored, wanted, where)
    state = reading.decode(chain, number, store, run_id, lenient=stored < wanted.number)
    return migrated(state, stored, wanted, where)


def check(stored: int, wanted: Schema, where: str) -> None:
    """Refuse a state from whose schema no way leads to that of the program.

    Args:
        stored: its schema.
        wanted: what the program declares.
        where: the run and waypoint, for the message.

    Raises:
        SchemaMismatch: it is newer, or a step is missing.
    """
    versions = f"$: the state has schema {stored}, the program has schema {wanted.number}"
    if stored > wanted.number and wanted == FIRST:
        raise SchemaMismatch(
            f"{where}: $: the state was saved with schema {stored}; this program declares none, "
            "which means 1: give it schema= and migrations= where it opens or loads the run. "
            "Nothing was changed."
        )
    if stored > wanted.number:
        raise SchemaMismatch(
            f"{where}: {versions}, which is older; use the program's version that wrote the state, "
            "or a newer one. Nothing was changed."
        )
    if stored < wanted.oldest:
        missing = f"the step from schema {stored} to {stored + 1}"
        raise SchemaMismatch(
            f"{where}: {versions}, and {missing} is missing: its migrations begin at schema "
            f"{wanted.oldest}. Put that step in front of them. Nothing was changed."
        )


def migrated(state: Any, stored: int, wanted: Schema, where: str) -> Any:
    """Lead a state from its schema to that of the program; see `check`.

    Args:
        state: the state; a step may change it in place.
        stored: its schema.
        wanted: what the program declares.
        where: the run and waypoint, for the message.

    Raises:
        SchemaMismatch: a step failed, or what came of the steps cannot be kept.
    """
    steps = wanted.steps[stored - wanted.oldest :]
    if stored == wanted.number:
        return state
    for number, step in enumerate(steps, stored):
        state = stepped(step, state, number, where)
    check_kept(state, stored, wanted, where)
    return state


def stepped(step: Callable[[Any], Any], state: Any, number: int, where: str) -> Any:
    """Lead a state one schema on, from `number`; see `migrated`.

    Raises:
        SchemaMismatch: the step failed, or returned nothing.
    """
    try:
        made = step(state)
    except Exception as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise SchemaMismatch(
            f"{where}: $: the migration from schema {number} to {number + 1}, {_name(step)}, "
            f"failed with {one_line(told, 400)}. Nothing was changed."
        ) from error
    if made is None and state is not None:
        raise SchemaMismatch(
            f"{where}: $: the migration from schema {number} to {number + 1}, {_name(step)}, was "
            "given a state and returned nothing: does it lack a `return`? Nothing was changed."
        )
    return made


def check_kept(state: Any, stored: int, wanted: Schema, where: str) -> None:
    """Refuse what came out of the steps and cannot be kept; see `migrated`.

    Raises:
        SchemaMismatch: it cannot.
    """
    try:
        codec.encode(state)
    except UnserialisableState as error:
        raise SchemaMismatch(
            f"{where}: {error}. It came out of the migrations from schema {stored} to "
            f"{wanted.number}. Nothing was changed.",
            path=error.path,
        ) from error


def of_legacy(old: Any, run_id: str, wanted: Schema) -> Any:
    """Lead the state that release 0.2.0 left of a run to the schema of the program."""
    where = f"run {one_line(run_id)}, waypoint {old.number}"
    check(1, wanted, where)
    if wanted.number == 1:
        return old.state
    # A step may change what it gets, and this is still to be written down as it was.
    return migrated(copy.deepcopy(old.state), 1, wanted, where)


def _name(step: Callable[[Any], Any]) -> str:
    return one_line(getattr(step, "__qualname__", None) or type(step).__qualname__, 80)
