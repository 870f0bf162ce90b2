"""The rounds in which a job's graph runs: until no answer is held back that its nodes ask for.

Mostly there is one. What a round streamed that is done again in the next one is shown once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel

    from caravanserai.langgraph._checking import Checks

_TOLD_AGAIN: Final = ("values", "updates", "checkpoints")
"""Modes in which LangGraph (1.2.24) tells of tasks that have ended already, too."""


class Rounds:
    """One call of a graph.

    Args:
        graph: the graph.
        checks: which answers are held back.
        config: as in LangGraph.
        options: those of LangGraph's call.
    """

    def __init__(
        self,
        graph: Pregel[Any, Any, Any, Any],
        checks: Checks,
        config: RunnableConfig,
        options: Mapping[str, Any],
    ) -> None:
        self._graph = graph
        self._checks = checks
        self._config = config
        self._options: Any = options
        # What `invoke` returns in other modes are the parts of a stream.
        self._lists = options.get("stream_mode", "values") != "values"
        self._back: list[Any] = []

    def invoke(self, value: Any) -> Any:
        """Return what the graph's `invoke` returns."""
        result = self._graph.invoke(value, self._config, **self._options)
        before: list[Any] = []
        while self._checks.confirmed:
            before += self.next(result if self._lists else [])
            result = self._graph.invoke(None, self._config, **self._options)
        return [*before, *result] if before else result

    async def ainvoke(self, value: Any) -> Any:
        """Return what the graph's `ainvoke` returns."""
        result = await self._graph.ainvoke(value, self._config, **self._options)
        before: list[Any] = []
        while self._checks.confirmed:
            before += self.next(result if self._lists else [])
            result = await self._graph.ainvoke(None, self._config, **self._options)
        return [*before, *result] if before else result

    def stream(self, value: Any) -> Iterator[Any]:
        """Yield what the graph's `stream` yields."""
        while True:
            try:
                for item in self._graph.stream(value, self._config, **self._options):
                    yield from self._shown(item)
            except Exception:
                yield from self._back
                raise
            if not self._checks.confirmed:
                yield from self._back
                return
            yield from self.next(self._take_back())
            value = None

    async def astream(self, value: Any) -> AsyncIterator[Any]:
        """Yield what the graph's `astream` yields."""
        while True:
            try:
                async for item in self._graph.astream(value, self._config, **self._options):
                    for shown in self._shown(item):
                        yield shown
            except Exception:
                for shown in self._back:
                    yield shown
                raise
            if not self._checks.confirmed:
                for shown in self._back:
                    yield shown
                return
            for shown in self.next(self._take_back()):
                yield shown
            value = None

    def _shown(self, item: Any) -> list[Any]:
        """Return what can be shown now that something was streamed."""
        self._back.append(item)
        if self._checks.undecided:
            return []
        return self._take_back()

    def _take_back(self) -> list[Any]:
        back, self._back = self._back, []
        return back

    def next(self, items: list[Any]) -> list[Any]:
        """Begin a further round, in which the nodes get what they have asked for again.

        Args:
            items: what the round before it streamed, and nobody was shown.

        Returns:
            What is shown of it: what the next round does not tell, of tasks that have ended.
        """
        ended = self._checks.ended
        self._checks.again()
        if not ended:
            return []
        modes = self._options.get("stream_mode") or self._graph.stream_mode
        several = not isinstance(modes, str)

        def mode_of(item: Any) -> Any:
            if self._options.get("version") == "v2":
                return item["type"]
            return item[-2] if several else modes

        return [item for item in items if mode_of(item) not in _TOLD_AGAIN]
