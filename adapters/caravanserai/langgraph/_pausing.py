"""A job that waits for a person, told again in the forms of LangGraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langgraph.types import GraphOutput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langgraph.types import Interrupt

_PAUSED: Final = "__interrupt__"


class Pause(NamedTuple):
    """A question that stands open, told again in the forms of LangGraph (1.2.24).

    Attributes:
        values: the graph's output.
        asked: the interrupts.
    """

    values: Any
    asked: tuple[Interrupt, ...]

    def result(self, options: Mapping[str, Any]) -> Any:
        """Return what `invoke` returns."""
        if options.get("stream_mode", "values") != "values":
            return list(self.parts(options, "values"))
        if options.get("version") == "v2":
            return GraphOutput(value=self.values, interrupts=self.asked)
        return {**self._told(), _PAUSED: list(self.asked)}

    def parts(self, options: Mapping[str, Any], default: Any) -> Iterator[Any]:
        """Yield what `stream` yields at the pause; other modes than these two tell nothing."""
        modes = options.get("stream_mode") or default
        several = not isinstance(modes, str)
        wanted = set(modes) if several else {modes}
        for mode in ("updates", "values"):
            if mode not in wanted:
                continue
            data = {_PAUSED: self.asked}
            if options.get("version") == "v2":
                part: dict[str, Any] = {"type": mode, "ns": (), "data": data}
                if mode == "values":
                    part |= {"data": self.values, "interrupts": self.asked}
                yield part
                continue
            if mode == "values":
                data = {**self._told(), **data}
            names = (*([()] if options.get("subgraphs") else []), *([mode] if several else []))
            yield (*names, data) if names else data

    def _told(self) -> dict[str, Any]:
        return self.values if isinstance(self.values, dict) else {}
