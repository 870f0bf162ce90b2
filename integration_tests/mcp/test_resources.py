"""Notes as resources."""

from __future__ import annotations

from pathlib import Path

import pytest

from caravanserai import checkpoint
from integration_tests.mcp.talking import Client

NAMES = [
    "plain",
    "a/b c",
    "Ünï",
    "per%25cent",
    "x?y#z",
    "caravanserai://runs/q/latest",
    "new\nline",
]


def test_the_newest_runs_are_listed_and_can_be_read(reader: Client, shared_store: Path) -> None:
    for name in NAMES:
        checkpoint(name, 1, f"note of {len(name)}", store=shared_store)

    listed = reader.resources()[: len(NAMES)]

    for name, resource in zip(reversed(NAMES), listed, strict=True):
        assert resource["mimeType"] == "text/markdown"
        assert resource["description"].startswith("stopped, waypoint 1, ")
        content = reader.read(resource["uri"])
        assert content["mimeType"] == "text/markdown"
        assert content["uri"] == resource["uri"]
        assert "whatever it says.\n\n# Waypoint 1 — " in content["text"]
        assert f"note of {len(name)}" in content["text"]
    assert listed[0]["name"] == "new\\nline"


def test_there_are_two_forms(reader: Client, shared_store: Path) -> None:
    for number in (1, 2):
        checkpoint("formed", number, f"note {number}", store=shared_store)

    latest, waypoint = (template["uriTemplate"] for template in reader.templates())

    assert "note 2" in reader.read(latest.format(run="formed"))["text"]
    assert "note 1" in reader.read(waypoint.format(run="formed", n=1))["text"]


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("caravanserai://runs/nobody/latest", "no run 'nobody'"),
        ("caravanserai://runs/there/waypoints/99", "has no waypoint 99"),
        ("caravanserai://runs/there/waypoints/0", "no resource"),
        ("caravanserai://runs/th/latest", "no run 'th'"),
        ("caravanserai://runs/%FF/latest", "no resource"),
        ("caravanserai://runs/../latest", r"no (resource|run '\.\.')"),
        ("caravanserai://runs/..%2f..%2fetc%2fpasswd/latest", "no run '../../etc/passwd'"),
        ("file:///etc/passwd", "no resource"),
    ],
)
def test_what_is_none_is_refused_in_a_sentence(
    reader: Client, shared_store: Path, uri: str, said: str
) -> None:
    checkpoint("there", 1, store=shared_store)

    with pytest.raises(Exception, match=said) as error:
        reader.read(uri)

    assert "Traceback" not in str(error.value)
