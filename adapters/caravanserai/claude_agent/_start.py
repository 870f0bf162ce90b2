"""One start of a run: what stands before the CLI is started."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from claude_agent_sdk import ClaudeAgentOptions

from caravanserai.claude_agent import _entries, _facts, _local, _notes, _processes, _sdk
from caravanserai.claude_agent._book import FACT
from caravanserai.claude_agent._calls import Ended, digest_of
from caravanserai.claude_agent._options import Options, check_given
from caravanserai.claude_agent._recorder import Recorder
from caravanserai.claude_agent._seed import Seed, seed
from caravanserai.claude_agent._tools import HARMLESS
from caravanserai.claude_agent._transcripts import Key, Transcripts
from caravanserai_core import questions, reading
from caravanserai_core.continuing import Inherited
from caravanserai_core.errors import UsageError
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.quoting import one_line
from caravanserai_core.redact import beginning
from caravanserai_core.run import Run, open_run
from caravanserai_core.upkeep import fork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from caravanserai.claude_agent._entries import Entry
    from caravanserai.claude_agent._facts import Tree
    from caravanserai_core.journal import Journal

_log = logging.getLogger("caravanserai")

ADAPTER: Final = "claude-agent"

_GOAL: Final = 300

_NEEDED: Final = frozenset({"at", "claude", "prompt", "run", "session"})
"""What a state cannot be without."""

_BUFFER: Final = 64 * 1024 * 1024
"""Bytes of the longest message of the CLI, where the program says nothing; the SDK takes 1 MiB."""


class Ready(NamedTuple):
    """What the SDK is started with.

    Attributes:
        given: its options.
        recorder: writes down what the session does.
        resumes: the session is known to the CLI.
        rebuilt: the run was begun before, and its session is lost.
        seed: what a session that is new begins with, where the run goes on from another one.
    """

    given: ClaudeAgentOptions
    recorder: Recorder
    resumes: bool
    rebuilt: bool
    seed: Seed | None


def open_session(options: Options, goal: str | None) -> Run:
    """Open the run of a session; begins it at a waypoint of another run, where that is asked for.

    Raises:
        RunNotFound, WaypointNotFound: what it is to begin at, or to go on from, is not there.
        RunBusy: another process holds it, or the run that it is to go on from.
        InputChanged: it was begun without `continues`, or goes on from another run.
        UsageError: `replay` means nothing.
    """
    if options.forked is not None:
        _fork_once(options)
    journal = journal_for(store_for(options.run_id, options.store), options.run_id)
    journal.framework = _sdk.framework()
    run = open_run(
        options.run_id,
        store=options.store,
        adapter=ADAPTER,
        goal=goal,
        schema=options.schema,
        migrations=options.migrations,
        takeover=options.takeover,
        continues=options.continues,
    )
    Inherited(run.handoff, options.replay)  # refuses what nothing can be given again from
    return run


def _fork_once(options: Options) -> None:
    """Begin a run at a waypoint of another one, unless that was done before: then it goes on."""
    assert options.forked is not None, "no run to branch off"
    store = store_for(options.run_id, options.store)
    known = reading.recent(store, options.run_id)
    if known is not None:
        origin = reading.opening(known.opening).origin or {}
        if origin.get("run_id") == options.forked and options.at in (origin.get("waypoint"), -1):
            return
        of = f"waypoint {origin['waypoint']} of {origin['run_id']}" if "waypoint" in origin else ""
        raise UsageError(
            f"run {one_line(options.run_id)} exists already, and does not begin at waypoint "
            f"{options.at} of {one_line(str(options.forked))}"
            f"{f' but at {one_line(of)}' if of else ''}. Give another new_run_id, or leave at= "
            "and new_run_id= out and name that run to go on with it."
        )
    fork(options.forked, at=options.at, new_run_id=options.run_id, store=store)


def goal_of(prompt: str) -> str:
    """Return what a run is for."""
    short = beginning(prompt, _GOAL)
    return short if len(short) <= _GOAL else f"{short[:_GOAL]}…"


def known_state(run: Run, options: Options) -> Tree | None:
    """Return the state of a run's newest waypoint, None: it is new, or begins anew.

    Raises:
        UsageError: the run is of something else.
    """
    state = run.state
    if state is None or options.again:
        return None
    if not isinstance(state, dict) or not state.keys() >= _NEEDED:
        raise UsageError(
            f"run {one_line(run.run_id)} is not of a session under caravanserai.claude_agent: its "
            "state would be lost. Use another run_id."
        )
    return _facts.filled(state)


def waits(journal: Journal, known: Tree) -> bool:
    """Say whether a session that stopped at a call waits for a person still. In the run's turn."""
    ledger = questions.fresh(journal)
    if known["deferred"] is None:  # any answer is something to go on with
        return bool(ledger.open) and not any(
            one.state == "answered" for one in ledger.questions.values()
        )
    name = known["deferred"].get("question")
    return any(name in (None, question.id) for question in ledger.open)


def begun(run: Run, prompt: str | None) -> Tree:
    """Begin a run, or begin it anew; returns the state that it goes on with.

    Args:
        run: the run.
        prompt: what it is asked, None: a conversation.
    """
    if run.state is not None:
        run.afresh()
    known = seed(run)
    source = None if known is None else known.source
    tree = _facts.begun(run.run_id, _sdk.sdk_version(), prompt, source)
    first_waypoint(run, tree)
    return tree


def first_waypoint(run: Run, tree: Tree) -> None:
    """Write the waypoint that a run begins with."""
    note = _notes.note(tree, resumed=False)
    run.waypoint = run.checkpoint(tree, note, meta={"at": "begin"})
    _facts.new(tree)


def standing(run: Run, known: Tree, number: int) -> Tree:
    """Return the state of the next waypoint, as far as it is known: what came since is in it."""
    tree = dict(known)
    if known["did"] or known["at"] != "begin":
        tree["so_far"] = _notes.so_far(known["so_far"], number, _notes.line(known))
    _facts.new(tree)
    for entry in run.entries():
        if entry.name == FACT:
            _facts.take(tree, entry.data)
    return tree


def make_ready(
    run: Run,
    options: Options,
    given: ClaudeAgentOptions,
    tree: Tree,
    *,
    follows: bool,
    resumed: bool,
    deferred: str | None = None,
    lost: bool = False,
) -> Ready:
    """Find out how the session goes on; waits for what still works on it.

    Args:
        run: the run; this process holds it.
        options: how it is kept.
        given: the program's own options of the SDK.
        tree: the state of its next waypoint.
        follows: see `Recorder`.
        resumed: likewise.
        deferred: the call that the session stopped at, or None.
        lost: the CLI does not know the session any more.
    """
    check_given(given)
    kept = Transcripts(run)
    session = tree["session"]
    if tree["run"] != run.run_id:
        # The session of the run that this one branches off is not ours to go on with.
        _facts.branch(tree, run.run_id)
    old, parent = session["id"], session["parent"]
    recorder = Recorder(run, options, tree, kept, follows=follows, resumed=resumed)
    local = None
    if old is not None:
        commands = _outside(tree, given)
        taken = "began it lives on, and the run was taken from it"
        whose = taken if options.takeover else "began it is gone"
        _processes.end(run.run_id, old, lambda: _local.is_running(old, given, commands), whose)
        local = _local.take_over(run.run_id, old, given, kept)
    more: dict[str, Any]
    resumes, rebuilt = True, False
    if old is not None and kept.has(old) and not lost:
        if local is not None and local.usable:
            recorder.store.local.add(old)
        more = {"resume": old}
    else:
        if old is None or lost or (local is not None and local.blocked):
            # Before the CLI hears of it: whoever takes over has to know which session it was.
            new = str(uuid.uuid4())
            fact = {"what": "session", "id": new, "number": session["number"] + 1}
            fact |= {"run": run.run_id, "parent": parent}
            _facts.take(tree, fact)
            run.entry(FACT, fact)
        more = {"session_id": session["id"]}
        if parent is not None and kept.has(parent["id"]) and parent["last"] and not lost:
            kept.begin_at(parent["id"], parent["last"])
            more |= {"resume": parent["id"], "fork_session": True}
        else:
            resumes, rebuilt = False, bool(tree["turns"])
    if rebuilt:
        _log.warning(
            "run %s: its session cannot be opened any more. A new one, %s, is built from what is "
            "recorded of it",
            one_line(run.run_id),
            session["id"],
        )
        fact = {"what": "rebuilt", "session": session["id"]}
        _facts.take(tree, fact)
        run.entry(FACT, fact)
    # What ran in our own process ended with it, whatever the CLI wrote since.
    outside = {id_: tree["running"][id_] for id_ in _outside(tree, given)}
    closed = run._journal.turns.do(lambda: recorder.calls.close(outside, kept.answered))
    for fact in _facts_of(kept, old, closed):
        _facts.take(tree, fact)
        run.entry(FACT, fact, durable=False)
    _facts.cut_off(tree)
    if deferred is not None and old is not None:
        main = kept.read(Key(old))
        recorder.replayed = None if _entries.is_alone(main, deferred) else deferred
    for id_ in (old, None if parent is None else parent["id"]):
        if id_ is not None:
            recorder.calls.finished |= _unknown(tree, kept, id_)
    if rebuilt:
        for key in kept.counts:
            recorder.calls.finished |= _ended(kept.read(key))
    _log.info(
        "run %s: session %s %s",
        one_line(run.run_id),
        session["id"],
        "goes on" if resumes else "begins",
    )
    begun_with = None if resumes else seed(run)
    return Ready(_options(given, recorder, more), recorder, resumes, rebuilt, begun_with)


def everything_said(run: Run) -> list[Entry]:
    """Return the entries of all sessions of a run, without those of subagents."""
    kept = Transcripts(run)
    return [entry for key in kept.counts if not key.path for entry in kept.read(key)]


def _outside(tree: Tree, given: ClaudeAgentOptions) -> list[str]:
    """Return the calls that run in the CLI's own processes: those in ours died with it."""
    servers = given.mcp_servers if isinstance(given.mcp_servers, dict) else {}
    inside = tuple(
        f"mcp__{name}__" for name, server in servers.items() if server.get("type") == "sdk"
    )
    return [
        id_
        for id_, made in tree["running"].items()
        if not made["tool"].startswith(inside or ("\0",))
    ]


def _unknown(tree: Tree, kept: Transcripts, session: str) -> dict[str, Ended]:
    """Return the results of calls that ended, and that the model is going to know nothing of.

    Those that the transcript lost, and those of subagents that were cut off: their agent is told
    only that they were.
    """
    found: dict[str, Ended] = {}
    for id_, fact in [*tree["fresh"].items(), *tree["dropped"].items()]:
        if id_ not in kept.answered or id_ in tree["dropped"]:
            told = (fact["tool"], fact["call"], fact["arguments"], fact["whole"])
            found[id_] = Ended(*told)
    for id_ in _facts.unknown_agents(tree):
        found |= _ended(kept.read(Key(session, f"subagents/agent-{id_}")))
    return {id_: ended for id_, ended in found.items() if ended.tool not in HARMLESS}


def _facts_of(kept: Transcripts, session: str | None, calls: set[str]) -> Iterator[_facts.Fact]:
    """Yield the facts of calls that ended after their program, as the transcript tells of them."""
    if not calls or session is None:
        return
    for path in ("", *kept.paths(session)):
        entries = kept.read(Key(session, path))
        results = {result.id: result for result in _entries.results(entries)}
        for call in _entries.calls(entries):
            result = results.get(str(call.get("id")))
            if result is not None and result.id in calls:
                yield _facts.tool_fact(
                    str(call.get("name")),
                    call.get("input") or {},
                    result=result.text,
                    failed=result.failed,
                    id=result.id,
                    agent=path.removeprefix("subagents/agent-") or None,
                )


def _ended(entries: list[Entry]) -> dict[str, Ended]:
    """Return the results of the calls that a transcript tells of."""
    found: dict[str, Ended] = {}
    results = {result.id: result for result in _entries.results(entries)}
    for call in _entries.calls(entries):
        result = results.get(str(call.get("id")))
        tool, arguments = str(call.get("name")), call.get("input") or {}
        if result is not None and not result.failed and tool not in HARMLESS:
            shown = _facts.shown(arguments)
            found[result.id] = Ended(tool, digest_of(tool, arguments), shown, result.text)
    return found


def _options(
    given: ClaudeAgentOptions, recorder: Recorder, more: dict[str, Any]
) -> ClaudeAgentOptions:
    store: Any = recorder.store  # it lacks what a session store may lack
    return dataclasses.replace(
        given,
        hooks=_sdk.with_hooks(given, recorder.hooks),
        session_store=store,
        # A turn that is only in the SDK's memory would be lost with the process.
        session_store_flush="eager",
        # Hooks and the mirror make messages of the CLI longer than they would be without.
        max_buffer_size=given.max_buffer_size or _BUFFER,
        stderr=_heard(given),
        **more,
    )


def _heard(given: ClaudeAgentOptions) -> Callable[[str], None]:
    """Return what is called with the CLI's error output: the reason of a failed start is there."""
    theirs = given.stderr

    def heard(line: str) -> None:
        if "is already in use" in line:
            _log.warning(
                "options of with_waypoints are for one session: ask for new ones each time"
            )
        if theirs is not None:
            theirs(line)
        else:
            _log.info("claude: %s", one_line(line, 500))

    return heard
