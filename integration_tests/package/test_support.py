"""The guards that other tests rely on do guard."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from integration_tests import support
from integration_tests.support import ROOT

pytest_plugins = ["pytester"]


def run_with_our_conftest(
    pytester: pytest.Pytester, code: str, *arguments: str
) -> pytest.RunResult:
    """Run a test file under the project's conftest, in a process of its own."""
    pytester.makeconftest((ROOT / "integration_tests" / "conftest.py").read_text("utf-8"))
    pytester.makepyfile(code)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize("swallow", [False, True])
def test_a_test_that_reaches_out_fails(pytester: pytest.Pytester, swallow: bool) -> None:
    result = run_with_our_conftest(
        pytester,
        f"""
        import contextlib, socket
        def test_reaches_out():
            with contextlib.suppress(OSError) if {swallow} else contextlib.nullcontext():
                socket.create_connection(("192.0.2.1", 9), timeout=0.1)
        """,
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*refused*192.0.2.1*" if not swallow else "*reached outside*"])


def test_a_name_outside_this_machine_is_not_looked_up(pytester: pytest.Pytester) -> None:
    result = run_with_our_conftest(
        pytester,
        """
        import socket, pytest
        def test_looks_up():
            with pytest.raises(PermissionError):
                socket.getaddrinfo("example.invalid", 80)
        """,
    )
    result.assert_outcomes(passed=1, errors=1)


def test_this_machine_is_reached(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()[:2]).close()
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("here")
        unix.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("here")


def test_each_test_has_its_own_folder_and_no_store_of_the_person(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARAVANSERAI_STORE", "somewhere")
    result = run_with_our_conftest(
        pytester,
        """
        import os, pathlib
        def test_folder(tmp_path, store_dir, thorough):
            assert pathlib.Path.cwd() == tmp_path == store_dir.parent and not store_dir.exists()
            assert "CARAVANSERAI_STORE" not in os.environ
            assert thorough
        """,
        "--thorough",
    )
    result.assert_outcomes(passed=1)


def test_a_missing_framework_is_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no_such_module is not installed"):
        support.require("no_such_module")
    with pytest.raises(pytest.skip.Exception, match=r"no-such-command"):
        support.require_command("no-such-command")


def test_a_missing_framework_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"no_such_module is not installed"):
        support.require("no_such_module")


def test_a_framework_that_breaks_is_not_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks_on_import.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError):
        support.require("breaks_on_import")


def test_a_framework_that_is_there_is_returned() -> None:
    assert support.require("os") is os
    assert support.require_command(sys.executable) == sys.executable
