"""Work that is not at its end: what models answered and what tools gave; needs no CrewAI.

A waypoint's state carries what was recorded of such work before it, and behind the newest waypoint
stand the steps since.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.crewai._forms import (
    Call,
    call_by_text,
    calls_of,
    dict_of,
    list_of,
    plain,
    shown,
    text_of,
)
from caravanserai.crewai._steps import (
    GIVEN,
    GUARDRAIL,
    MODEL,
    PERSON,
    RAISED,
    STEP,
    TOOL,
    called_with,
    digest,
    simple_name,
)
from caravanserai_core.questions import digest_of
from caravanserai_core.words import arguments_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from caravanserai_core.transcript import Since

__all__ = ["Answer", "Asked", "Gave", "Told", "Work"]

_BODY: Final = "body"
_JUDGES: Final = "/guardrail-"

_CALLBACKS: Final = re.compile(
    r"(before_kickoff|after_kickoff) \d+|step_callback|task_callback|callback of .*", re.DOTALL
)
"""What steps are called that are callbacks of the program; see `_crew`."""

_COWORKERS: Final = ("Delegate work to coworker", "Ask question to coworker")
"""CrewAI's tools by which an agent lets another one work; what that does is recorded itself."""

_CUT_OFF: Final = "Its coworker was not at the end. What it did stands below."
_NOT_BEGUN: Final = "Its coworker did nothing yet."
_HAPPENED: Final = "A person said that it happened. What it gave is not known."
_NOT_KEPT: Final = "It ended, and its result could not be kept."


class Gave(NamedTuple):
    """What a call gave: a text, and whether it failed."""

    text: str
    failed: bool = False


class Asked(NamedTuple):
    """A call of a tool, and what it gave; None: that is not recorded."""

    call: Call
    gave: Gave | None


class Answer(NamedTuple):
    """What a model answered: who asked it, its text, and its calls; `unknown` in other forms."""

    agent: str
    text: str
    calls: tuple[Asked, ...] = ()
    unknown: int = 0


class Told(NamedTuple):
    """What a method gave, or who looked at a result said of it: a person, a guardrail."""

    text: str
    by_method: str = ""


class Work:
    """The steps of work that is not at its end.

    Args:
        carried: those that the state has, as plain JSON.
        since: what is recorded behind it.
    """

    def __init__(self, carried: dict[str, Any], since: Iterable[Since] = ()) -> None:
        self._steps = dict(carried)
        self._effects: dict[str, list[Since]] = {}
        self._carried: dict[str, Since] = {}
        for item in since:
            if item.kind == "effect":
                self._take_effect(item)
            elif item.name == STEP:
                self._take_step(item)
        self._answers = {key: _answer(data) for key, data in self._steps.items() if _is_model(key)}
        self._gave: dict[tuple[str, int], Gave | None] = {}
        self._asked: set[str] = set()
        self._match()

    def _take_effect(self, item: Since) -> None:
        head = item.head
        if head.get("what") == "fresh":
            self._steps.clear()
            self._effects.clear()
            self._carried.clear()
        elif "same" in head or "carried" in head:
            # It came along from another run: the call that takes its place is told.
            self._carried[str(head.get("key", ""))] = item
        elif head.get("tool") and not _CALLBACKS.fullmatch(item.name):
            self._effects.setdefault(str(head.get("key", "")), []).append(item)

    def _take_step(self, item: Since) -> None:
        key = text_of(dict_of(item.head.get("meta")).get("key"))
        self._steps.pop(key, None)
        if key and item.data is not None:
            self._steps[key] = plain(item.data)

    # ------------------------------------------------------------------ what there is

    @property
    def roots(self) -> list[str]:
        """The tasks or methods that have steps, by the beginning of their paths."""
        return list(dict.fromkeys(_path(key).partition("/")[0] for key in self._steps))

    def answered(self, root: str) -> bool:
        """Say whether a model answered in a task or method, or in front of the first task."""
        return any(_path(key).partition("/")[0] == root for key in self._answers)

    def of(self, root: str) -> Iterator[Answer | Told]:
        """Yield what was said in a task or method, in its order."""
        for key, data in self._steps.items():
            path, _, rest = key.partition("|")
            kind = rest.partition("|")[0]
            if path.partition("/")[0] != root:
                continue
            if key in self._answers:
                if _JUDGES not in path:
                    yield self._with_results(key)
            elif kind == PERSON:
                yield Told(shown(data))
            elif kind == GUARDRAIL and dict_of(data).get("success") is False:
                yield Told(text_of(data.get("error")))
            elif kind == _BODY:
                yield Told(shown(dict_of(data).get("value")), root.rpartition(".")[0])

    def left(self) -> Iterator[Asked]:
        """Yield the calls that no answer asked for: a method makes them, or the answer is gone."""
        for called, label in self._called():
            gave, effect = self._recorded(called), self._effects.pop(_step(called), [])
            if gave is None and not effect:
                continue  # it was not begun
            given = dict_of(self._steps.get(f"{called}|{GIVEN}"))
            of = text_of(dict_of(self._steps.get(called)).get("of"))
            of = of or text_of(effect[0].head.get("of") if effect else "")
            yield Asked(Call("", label, given or of or {}), gave or self._ended(effect))
        for found in self._effects.values():
            of = text_of(found[0].head.get("of"))
            yield Asked(Call("", found[0].name, of or {}), self._ended(found))

    def _called(self) -> list[tuple[str, str]]:
        """Return the calls that steps tell of and no answer asked for: their keys, and tools."""
        found: dict[str, str] = {}
        for key in self._steps:
            label = key.partition(f"|{TOOL}|")[2].rpartition("(")[0]
            called = key.removesuffix(f"|{RAISED}").removesuffix(f"|{GIVEN}")
            if label and called not in self._asked:
                found[called] = label
        return list(found.items())

    def _with_results(self, key: str) -> Answer:
        answer = self._answers[key]
        path = _path(key)
        newest = next(reversed([one for one in self._answers if _path(one) == path]))
        asked = [Asked(one.call, self._gave.get((key, n))) for n, one in enumerate(answer.calls)]
        if key != newest:
            # CrewAI went on: what was not begun by then was not made.
            asked = [one for one in asked if one.gave is not None]
        return answer._replace(calls=tuple(asked))

    # ------------------------------------------------------------------ calls and their results

    def _match(self) -> None:
        """Find what each call gave: by the very key of its step, else by name and arguments."""
        seen: Counter[str] = Counter()
        open_ = []
        for key, answer in self._answers.items():
            for number, one in enumerate(answer.calls):
                found, gave = self._by_key(_path(key), one.call, seen)
                self._gave[key, number] = gave
                if not found:
                    open_.append((key, number, one.call))
        for key, number, call in open_:
            self._gave[key, number] = self._alike(call)

    def _by_key(self, path: str, call: Call, seen: Counter[str]) -> tuple[bool, Gave | None]:
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        for label in self._labels(call.name):
            name = f"{path}|{TOOL}|{called_with(label, arguments)}"
            key = f"{name}#{seen[name] + 1}"
            gave = self._recorded(key)
            effect = self._effects.pop(_step(key), None)
            self._asked.add(key)
            inside = f"{path}/{digest(key)}"
            if gave is None and effect is not None:
                gave = self._ended(effect)
            elif gave is None and any(_path(one).startswith(inside) for one in self._steps):
                gave = self._of_coworker(inside)
            elif gave is None:
                continue
            seen[name] += 1
            return True, gave
        if _same_name(call.name, *_COWORKERS):
            return True, Gave(_NOT_BEGUN, failed=True)
        return False, None

    def _labels(self, name: str) -> list[str]:
        """Return what a tool may be called where it is recorded: models know a simpler name."""
        noted = [key.partition(f"|{TOOL}|")[2].rpartition("(")[0] for key in self._steps]
        labels = [found[0].name for found in self._effects.values()]
        known = dict.fromkeys([name, *labels, *noted, *_COWORKERS])
        return [label for label in known if _same_name(name, label)]

    def _recorded(self, key: str) -> Gave | None:
        raised = dict_of(self._steps.get(f"{key}|{RAISED}"))
        if raised:
            return Gave(f"{text_of(raised.get('type'))}: {text_of(raised.get('text'))}", True)
        known = dict_of(self._steps.get(key))
        return Gave(text_of(known.get("gave"))) if known else None

    def _ended(self, effect: list[Since]) -> Gave | None:
        """Return what a call gave, as the records of its step say; None: that is not known."""
        last = effect[-1]
        takes = list_of(last.head.get("takes"))
        gave = _gave(last)
        if gave is None and len(takes) == 2 and takes[1] in self._carried:
            return _gave(self._carried[takes[1]])  # killed before it was told of the call too
        return gave

    def _of_coworker(self, path: str) -> Gave:
        said = [answer for key, answer in self._answers.items() if _path(key).startswith(path)]
        if said and not said[-1].calls:
            return Gave(said[-1].text)
        return Gave(_CUT_OFF, failed=True)

    def _alike(self, call: Call) -> Gave | None:
        """Return what a call gave that is the likeliest: a tool may be given other arguments."""
        effects = self._effects
        same = [key for key in effects if _same_name(call.name, effects[key][0].name)]
        if not same:
            return None
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        of = arguments_text(arguments)
        exact = [key for key in same if effects[key][0].head.get("of", "") == of]
        return self._ended(effects.pop((exact or same)[0]))


def _answer(data: Any) -> Answer:
    told = dict_of(data)
    agent, answer = text_of(told.get("agent")), told.get("answer")
    if isinstance(answer, list):
        calls = list(calls_of(list_of(answer)))
        known = tuple(Asked(call, None) for call in calls if call is not None)
        return Answer(agent, "", known, len(calls) - len(known))
    text = shown(answer)
    call = call_by_text(text)
    return Answer(agent, text, () if call is None else (Asked(call, None),))


def _gave(last: Since) -> Gave | None:
    """Return what a call gave, as the newest record of its step says; None: that is not known."""
    what = last.head.get("what")
    if what == "result":
        if last.data is None and last.head.get("taken"):
            return Gave(_HAPPENED)
        return Gave(shown(plain(last.data)))
    if what == "error":
        return Gave(text_of(last.head.get("error")), failed=True)
    return Gave(_NOT_KEPT) if what == "unrecorded" else None


def _step(key: str) -> str:
    """Return the key under which the core has the step that a call is; see `_calls`."""
    return digest_of(key, "a call")


def _is_model(key: str) -> bool:
    return key.partition("|")[2].startswith(f"{MODEL}|")


def _path(key: str) -> str:
    return key.partition("|")[0]


def _same_name(name: str, *others: str) -> bool:
    """Say whether a name that a model knows is that of one of some tools."""
    simple = simple_name(name)
    return any(simple == simple_name(other) for other in others)
