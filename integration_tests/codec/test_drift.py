"""The program changes between save and load: what still fits is loaded, the rest is named."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from caravanserai_core.codec import decode, encode, register_codec, register_type
from caravanserai_core.errors import SchemaMismatch, UnknownType, UnserialisableState, UsageError
from integration_tests.support import ROOT

PRELUDE = """
from __future__ import annotations
import collections, dataclasses, enum
from typing import Any, NamedTuple
import pydantic
"""


@pytest.fixture
def app() -> Iterator[Any]:
    """Make modules of a program that can be written anew, as an upgrade does."""
    made: list[str] = []

    def define(name: str, source: str) -> types.ModuleType:
        module = types.ModuleType(name)
        sys.modules[name] = module
        made.append(name)
        exec(PRELUDE + textwrap.dedent(source), module.__dict__)
        return module

    yield define
    for name in made:
        sys.modules.pop(name, None)


def saved(app: Any, source: str, expression: str) -> tuple[bytes, bool]:
    module = app("drift_app", source)
    value = eval(expression, module.__dict__)
    return encode({"s": [value]})


def loaded(app: Any, source: str, data: tuple[bytes, bool]) -> Any:
    app("drift_app", source)
    state: Any = decode(*data)
    return state["s"][0]


KINDS = {
    "dataclass": ("@dataclasses.dataclass\nclass X:\n", "X(1, 2)", "{}"),
    "slots": ("@dataclasses.dataclass(frozen=True, slots=True)\nclass X:\n", "X(1, 2)", "{}"),
    "model": ("class X(pydantic.BaseModel):\n", "X(a=1, b=2)", "{}"),
    "named tuple": ("class X(NamedTuple):\n", "X(1, 2)", "{}"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_new_field_with_a_default_gets_it(app: Any, kind: str) -> None:
    """A field that the class got since the save takes its default."""
    head, made, _ = KINDS[kind]
    data = saved(app, head + "    a: int\n    b: int", made)
    again = loaded(app, head + "    a: int\n    b: int\n    c: int = 3", data)
    assert (again.a, again.b, again.c) == (1, 2, 3)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("dataclass", "dataclasses.field(default_factory=list)"),
        ("slots", "dataclasses.field(default_factory=list)"),
        ("model", "pydantic.Field(default_factory=list)"),
        ("model", "[]"),
    ],
)
def test_new_field_with_a_factory_gets_its_own_value(app: Any, kind: str, default: str) -> None:
    """Two loads of an old state do not share the new field's list."""
    head, made, _ = KINDS[kind]
    data = saved(app, head + "    a: int\n    b: int", made)
    new = head + f"    a: int\n    b: int\n    c: list[int] = {default}"
    one, two = loaded(app, new, data), loaded(app, new, data)
    assert one.c == two.c == []
    assert one.c is not two.c


def test_factory_that_takes_the_other_fields_gets_them(app: Any) -> None:
    """A pydantic factory that computes from the fields before it sees the stored ones."""
    head = "class X(pydantic.BaseModel):\n    a: int\n"
    data = saved(app, head, "X(a=4)")
    new = head + "    c: int = pydantic.Field(default_factory=lambda fields: fields['a'] * 2)"
    assert loaded(app, new, data).c == 8


@pytest.mark.parametrize("kind", KINDS)
def test_new_field_without_a_default_is_a_mismatch(app: Any, kind: str) -> None:
    """A new field that nothing is known about is named, with its path."""
    head, made, _ = KINDS[kind]
    data = saved(app, head + "    a: int\n    b: int", made)
    with pytest.raises(SchemaMismatch, match=r"field c .*no default") as caught:
        loaded(app, head + "    a: int\n    b: int\n    c: int", data)
    assert caught.value.path == "$.s[0]"


@pytest.mark.parametrize("kind", KINDS)
def test_removed_field_is_a_mismatch(app: Any, kind: str) -> None:
    """A stored field that the class has no longer is never dropped."""
    head, made, _ = KINDS[kind]
    data = saved(app, head + "    a: int\n    b: int", made)
    with pytest.raises(SchemaMismatch, match="no field b any more") as caught:
        loaded(app, head + "    a: int", data)
    assert caught.value.path == "$.s[0]"


@pytest.mark.parametrize("kind", KINDS)
def test_reordered_fields_are_found_by_name(app: Any, kind: str) -> None:
    """Fields in another order keep their values."""
    head, made, _ = KINDS[kind]
    data = saved(app, head + "    a: int\n    b: int", made)
    again = loaded(app, head + "    b: int\n    a: int", data)
    assert (again.a, again.b) == (1, 2)


@pytest.mark.parametrize("kind", ["dataclass", "slots", "model"])
def test_constructor_is_not_called(app: Any, kind: str) -> None:
    """A class whose constructor has begun to fail still loads, with the values as stored."""
    head, made, _ = KINDS[kind]
    fields = "    a: int\n    b: int\n"
    data = saved(app, head + fields, made)
    broken = """\
    def __init__(self, *args, **kwargs): raise RuntimeError('constructor')
    def __post_init__(self): raise RuntimeError('post init')
    def __setattr__(self, name, value): raise RuntimeError('setattr')
    def __new__(cls, *args, **kwargs): raise RuntimeError('new')
"""
    if kind == "slots":
        broken = broken.replace(
            "    def __setattr__(self, name, value): raise RuntimeError('setattr')\n", ""
        )
    again = loaded(app, head + fields + broken, data)
    assert (again.a, again.b) == (1, 2)


def test_validators_are_not_called(app: Any) -> None:
    """A model's validators do not touch, refuse or convert what was stored."""
    head = "class X(pydantic.BaseModel):\n    a: Any\n"
    data = saved(app, head, "X(a='1')")
    strict = """\
class X(pydantic.BaseModel):
    a: int
    @pydantic.field_validator('a')
    @classmethod
    def check(cls, value): raise ValueError('checked')
    def model_post_init(self, context): raise RuntimeError('post init')
"""
    assert loaded(app, strict, data).a == "1"


def test_removed_enum_member_is_a_mismatch(app: Any) -> None:
    """A member that is gone is named; it never becomes another one or None."""
    data = saved(app, "class X(enum.Enum):\n    A = 1\n    B = 2", "X.B")
    with pytest.raises(SchemaMismatch, match="no member B any more") as caught:
        loaded(app, "class X(enum.Enum):\n    A = 1", data)
    assert caught.value.path == "$.s[0]"


def test_renamed_enum_member_is_found_by_an_alias(app: Any) -> None:
    """A member that kept its old name as an alias is found, also under a new value."""
    data = saved(app, "class X(enum.Enum):\n    A = 1\n    B = 2", "X.B")
    again = loaded(app, "class X(enum.Enum):\n    A = 1\n    NEW = 'b'\n    B = 'b'", data)
    assert again.name == "NEW"


def test_removed_flag_bit_is_a_mismatch(app: Any) -> None:
    """A combination with a bit that is gone is not cut down silently, whatever the boundary."""
    for boundary in ("STRICT", "CONFORM", "EJECT"):
        head = f"class X(enum.Flag, boundary=enum.{boundary}):\n    A = 1\n"
        data = saved(app, head + "    B = 2", "X.A | X.B")
        with pytest.raises(SchemaMismatch, match="bits"):
            loaded(app, head, data)


def test_removed_private_attribute_and_extra_are_a_mismatch(app: Any) -> None:
    """What a model kept outside its fields is not dropped either."""
    data = saved(app, "class X(pydantic.BaseModel):\n    a: int = 1\n    _p: int = 5", "X()")
    with pytest.raises(SchemaMismatch, match="_p"):
        loaded(app, "class X(pydantic.BaseModel):\n    a: int = 1", data)
    allow = "    model_config = pydantic.ConfigDict(extra='allow')\n"
    data = saved(app, f"class X(pydantic.BaseModel):\n{allow}    a: int = 1", "X(z=1)")
    with pytest.raises(SchemaMismatch, match="extra"):
        loaded(app, "class X(pydantic.BaseModel):\n    a: int = 1", data)


def test_added_private_attribute_gets_its_default(app: Any) -> None:
    """A model that had no private attributes gets the defaults of new ones."""
    data = saved(app, "class X(pydantic.BaseModel):\n    a: int = 1", "X()")
    again = loaded(app, "class X(pydantic.BaseModel):\n    a: int = 1\n    _p: int = 5", data)
    assert again._p == 5


def test_class_of_another_kind_is_unknown(app: Any) -> None:
    """A dataclass that has become a model is not rebuilt as something else."""
    data = saved(app, "@dataclasses.dataclass\nclass X:\n    a: int", "X(1)")
    with pytest.raises(UnknownType) as caught:
        loaded(app, "class X(pydantic.BaseModel):\n    a: int", data)
    assert caught.value.type_name == "drift_app:X"
    assert caught.value.path == "$.s[0]"


def test_moved_class_is_found_by_its_alias(app: Any) -> None:
    """A class that moved to another module loads by the alias of its old name, else not."""
    source = "@dataclasses.dataclass\nclass Moved:\n    a: int"
    data = saved(app, source, "Moved(1)")
    del sys.modules["drift_app"]
    moved = app("drift_app_new", source)
    with pytest.raises(UnknownType, match=r"drift_app:Moved.*aliases") as caught:
        decode(*data)
    assert caught.value.type_name == "drift_app:Moved"
    register_type(moved.Moved, aliases=["drift_app:Moved"])
    state: Any = decode(*data)
    assert type(state["s"][0]) is moved.Moved


def test_new_class_under_a_name_that_is_now_an_alias_is_refused(app: Any) -> None:
    """What would come back as the moved class is refused when it is saved."""
    source = "@dataclasses.dataclass\nclass Reused:\n    a: int"
    new = app("drift_app_new", source)
    register_type(new.Reused, aliases=["drift_app:Reused"])
    impostor = app("drift_app", source)
    assert type(decode(*encode(new.Reused(1)))) is new.Reused
    with pytest.raises(UnserialisableState, match="alias of another class"):
        encode(impostor.Reused(1))


def test_stable_name_works_in_both_directions(app: Any) -> None:
    """With one stable name the old program reads the new one's states, and the reverse."""
    source = "@dataclasses.dataclass\nclass X:\n    a: int"
    old = app("drift_app_old", source)
    register_type(old.X, name="drift-order")
    from_old = encode([old.X(1)])
    assert b"drift_app_old" not in from_old.data
    # The new program: the class is elsewhere and has another name there.
    sys.modules.pop("drift_app_old")
    new = app("drift_app_old", source.replace("class X", "class Order"))
    # So that it takes the name over, as a new process would.
    new.Order.__qualname__ = "X"
    new.X = new.Order  # type: ignore[attr-defined]
    register_type(new.Order, name="drift-order")
    again: Any = decode(*from_old)
    assert type(again[0]) is new.Order
    assert encode(again) == from_old


def test_renamed_class_is_found_by_its_alias(app: Any) -> None:
    """A class under a new name loads what was saved under the old one."""
    data = saved(app, "class Before(enum.Enum):\n    A = 1", "Before.A")
    module = app("drift_app", "class After(enum.Enum):\n    A = 1")
    register_type(module.After, name="drift-after", aliases=["drift_app:Before"])
    state: Any = decode(*data)
    assert state["s"][0] is module.After.A


def test_decorator_registers() -> None:
    """`@register_type(name=…)` gives a class made inside a function a name."""
    import dataclasses

    @register_type(name="drift-decorated", aliases=["drift-old"])
    @dataclasses.dataclass
    class Inside:
        a: int

    data, tagged, _ = encode(Inside(1))
    assert orjson.loads(data)["$object"]["type"] == "drift-decorated"
    assert decode(data, tagged) == Inside(1)
    assert decode(data.replace(b"drift-decorated", b"drift-old"), tagged) == Inside(1)


def test_class_that_was_defined_again_takes_the_name_over(app: Any) -> None:
    """A second run of a notebook's cell: new objects are kept, those of the old class refused."""
    body = "@dataclasses.dataclass\nclass Cell:\n    a: int\n"
    cells = {
        "drift-cell": 'from caravanserai import register_type\n@register_type(name="drift-cell")\n'
        + body,
        "drift-call": "from caravanserai import register_type\n"
        + body
        + 'register_type(Cell, name="drift-call")\n',
    }
    for name, source in cells.items():
        notebook = app(f"{name}-notebook".replace("-", "_"), "")
        exec(source, notebook.__dict__)
        old = notebook.Cell
        exec(source, notebook.__dict__)
        new = notebook.Cell
        assert new is not old
        assert type(decode(*encode(new(1)))) is new
        with pytest.raises(UnserialisableState, match=r"module|alias"):
            encode(old(1))


def test_second_class_of_one_function_does_not_take_the_name_over() -> None:
    """Two living classes that only share their `f.<locals>.X` are not one class."""
    import collections
    import dataclasses

    def make() -> Any:
        @dataclasses.dataclass
        class Made:
            a: int

        return Made

    first, second = make(), make()
    register_type(first, name="drift-made")
    with pytest.raises(UsageError, match="already belongs to another class"):
        register_type(second, name="drift-made")
    with pytest.raises(UsageError, match="already belongs to another class"):
        register_type(name="drift-made")(second)
    with pytest.raises(UsageError, match="already belongs to another class"):
        register_codec(second, name="drift-made", encode=vars, decode=lambda _: second(1))
    register_type(first, name="drift-made")
    assert type(decode(*encode(first(1)))) is first
    one: Any = collections.namedtuple("Twin", "a")  # type: ignore[name-match]
    two: Any = collections.namedtuple("Twin", "b")  # type: ignore[name-match]
    register_type(one, name="drift-twin")
    with pytest.raises(UsageError, match="already belongs to another class"):
        register_type(two, name="drift-twin")


def test_reloaded_module_gives_the_new_class(app: Any) -> None:
    """After a reload the stored value comes back as the new class; an old object is refused."""
    source = "@dataclasses.dataclass\nclass X:\n    a: int"
    old = app("drift_app", source).X(1)
    data = encode(old)
    new = app("drift_app", source).X
    assert type(decode(*data)) is new
    with pytest.raises(UnserialisableState, match=r"drift_app\.X"):
        encode(old)


def test_codec_of_an_adapter_keeps_its_class() -> None:
    """An adapter's two functions decide what is kept; the value between them is exact too."""

    class Message:
        def __init__(self, parts: object) -> None:
            self.parts = parts

    register_codec(
        Message,
        name="test-message",
        encode=lambda message: {"$parts": message.parts},
        decode=lambda content: Message(content["$parts"]),  # type: ignore[index]
    )
    parts = (1, {"$tuple": b"x"}, [None])
    for place in (Message(parts), [Message(parts)] * 40, {Message(parts): (1,)}):
        data, tagged, _ = encode(place)
        assert b'"kind":"codec"' in data
        again: Any = decode(data, tagged)
        while not isinstance(again, Message):
            again = next(iter(again))
        assert again.parts == parts
        assert type(again.parts) is tuple


def test_codec_that_fails_on_reading_is_a_mismatch() -> None:
    """An adapter's error on reading has path, type and cause; the value never becomes None."""

    class Failing:
        pass

    def fail(content: object) -> Failing:
        raise LookupError("inner")

    register_codec(Failing, name="test-failing", encode=lambda value: 1, decode=fail)
    data = encode({"a": [Failing()]})
    with pytest.raises(SchemaMismatch, match="LookupError") as caught:
        decode(*data)
    assert caught.value.path == "$.a[0]"
    assert isinstance(caught.value.__cause__, LookupError)


def test_codec_that_answers_another_type_is_a_mismatch() -> None:
    """A codec that gives back something else than its class is not trusted."""

    class Asked:
        pass

    register_codec(Asked, name="test-asked", encode=lambda v: None, decode=lambda c: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(SchemaMismatch, match="NoneType"):
        decode(*encode(Asked()))


# --- __main__ ---------------------------------------------------------------------------------

SAVE = """
import dataclasses, enum, sys
from caravanserai_core.codec import encode, register_type

@dataclasses.dataclass
class State:
    n: int

class Phase(enum.Enum):
    A = 1
    class Inner(enum.Enum):
        B = 1
{more}
if __name__ == "__main__":
    data, tagged, _ = encode([State(1), Phase.A])
    assert tagged
    open(sys.argv[1], "wb").write(data)
"""
LOAD = """
import dataclasses, enum, sys
from caravanserai_core.codec import decode, register_type
from caravanserai_core.errors import CaravanseraiError

@dataclasses.dataclass
class State:
    n: int

class Phase(enum.Enum):
    A = 1
{more}
if __name__ == "__main__":
    try:
        state = decode(open(sys.argv[1], "rb").read(), True)
    except CaravanseraiError as error:
        print(type(error).__name__, error)
    else:
        assert state == [State(1), Phase.A]
        print("same")
"""


def python(folder: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters"), str(folder)])
    run = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def scripts(folder: Path, save: str = "", load: str = "") -> None:
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    (folder / "one" / "agent.py").write_text(SAVE.format(more=save))
    (folder / "two" / "agent.py").write_text(LOAD.format(more=load))
    (folder / "other.py").write_text(LOAD.format(more=load))


def test_type_of_a_script_loads_in_the_same_script(tmp_path: Path) -> None:
    """A class defined in a script is found again by the script of the same file name."""
    scripts(tmp_path)
    python(tmp_path, "one/agent.py", "file")
    assert b'"script":"agent.py"' in (tmp_path / "file").read_bytes()
    assert python(tmp_path, "two/agent.py", "file") == "same\n"


def test_type_of_a_script_is_unknown_elsewhere(tmp_path: Path) -> None:
    """Another script that happens to have a class of that name does not get the object."""
    scripts(tmp_path)
    python(tmp_path, "one/agent.py", "file")
    for told in (
        python(tmp_path, "other.py", "file"),
        python(tmp_path, "-c", (tmp_path / "other.py").read_text(), "file"),
        python(tmp_path, "-m", "other", "file"),
    ):
        assert told.startswith("UnknownType $[0]: ")
        assert "__main__:State" in told
        assert "register_type(cls, name=" in told
        assert "agent.py" in told


def test_type_of_a_module_run_with_m_loads_there(tmp_path: Path) -> None:
    """`python -m agent` is known by the module's name, wherever its file is."""
    scripts(tmp_path)
    (tmp_path / "agent.py").write_text(SAVE.format(more=""))
    python(tmp_path, "-m", "agent", "file")
    assert b'"script":"agent"' in (tmp_path / "file").read_bytes()
    (tmp_path / "agent.py").write_text(LOAD.format(more=""))
    assert python(tmp_path, "-m", "agent", "file") == "same\n"


def test_type_of_a_command_line_has_no_script(tmp_path: Path) -> None:
    """With `python -c` and in an interactive session there is no script to tell apart."""
    python(tmp_path, "-c", SAVE.format(more=""), "file")
    assert b'"script"' not in (tmp_path / "file").read_bytes()
    assert python(tmp_path, "-c", LOAD.format(more=""), "file") == "same\n"


def test_registered_type_of_a_script_loads_anywhere(tmp_path: Path) -> None:
    """A stable name frees a class from the script that it was defined in."""
    named = 'register_type(State, name="state")\nregister_type(Phase, name="phase")'
    scripts(tmp_path, named, named)
    python(tmp_path, "one/agent.py", "file")
    assert b"__main__" not in (tmp_path / "file").read_bytes()
    assert python(tmp_path, "other.py", "file") == "same\n"


def test_alias_brings_a_type_out_of_a_script(tmp_path: Path) -> None:
    """A class that was once in a script loads elsewhere by the alias of its old name."""
    named = (
        'register_type(State, aliases=["__main__:State"])\n'
        'register_type(Phase, aliases=["__main__:Phase"])'
    )
    scripts(tmp_path, "", named)
    python(tmp_path, "one/agent.py", "file")
    assert python(tmp_path, "other.py", "file") == "same\n"


def test_type_of_a_script_is_the_same_in_a_spawned_child(tmp_path: Path) -> None:
    """What a child process of multiprocessing saves, its parent's script loads."""
    (tmp_path / "agent.py").write_text(
        textwrap.dedent("""
        import dataclasses, multiprocessing
        from caravanserai_core.codec import decode, encode

        @dataclasses.dataclass
        class State:
            n: int

        def child(value):
            return tuple(encode(decode(*value)))

        if __name__ == "__main__":
            mine = tuple(encode(State(1)))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                theirs = pool.apply(child, (mine,))
            assert mine == theirs, (mine, theirs)
            print(decode(*theirs))
        """)
    )
    assert python(tmp_path, "agent.py") == "State(n=1)\n"
