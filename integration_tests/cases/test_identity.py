"""One name in several places: what is apart stays apart."""

from __future__ import annotations

from pathlib import Path

from caravanserai import checkpoint, clean, history, list_runs, load, open_run


def test_a_name_that_a_client_chose_crosses_no_border(tmp_path: Path) -> None:
    """The same name in two stores, behind two prefixes and in two lanes: each its own state."""
    for tenant in ("a", "b"):
        checkpoint("chat", {"of": f"store {tenant}"}, store=tmp_path / tenant)
        checkpoint(f"{tenant}:chat", {"of": f"prefix {tenant}"})
        checkpoint(f"{tenant}/chat", {"of": f"folder {tenant}"})
        open_run("chat").checkpoint({"of": f"lane {tenant}"}, lane=tenant)

    for tenant in ("a", "b"):
        assert load("chat", store=tmp_path / tenant) == {"of": f"store {tenant}"}
        assert load(f"{tenant}:chat") == {"of": f"prefix {tenant}"}
        assert load(f"{tenant}/chat") == {"of": f"folder {tenant}"}
    assert {point.lane: point.state for point in history("chat")} == {
        "a": {"of": "lane a"},
        "b": {"of": "lane b"},
    }
    assert clean("chat", store=tmp_path / "a")
    assert clean("a:chat")
    assert load("chat", store=tmp_path / "b") == {"of": "store b"}
    assert {info.run_id for info in list_runs()} == {"chat", "b:chat", "a/chat", "b/chat"}
