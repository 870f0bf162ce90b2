"""LangChain's messages in a state: exact, short, and refused with the path of the leaf."""

# ruff: noqa: E402

from __future__ import annotations

import collections
import subprocess
import sys
import types
from typing import Any

import hypothesis
import orjson
import pytest
from hypothesis import strategies as st

from integration_tests.support import require

require("langchain_core")

import langchain_core.messages
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from caravanserai import checkpoint, langchain, load
from caravanserai.langchain._messages import TABLES
from caravanserai.langchain.transcript import messages_of
from caravanserai_core import codec
from caravanserai_core.errors import SchemaMismatch, UnknownType, UnserialisableState
from integration_tests.langchain.messages import CHAT, OTHERS, messages, same, texts, values

langchain.register()


class Note(AIMessage):
    """A message class of a program's own."""

    weight: float = 1.0


def roundtrip(value: object) -> Any:
    return codec.decode(*codec.encode(value))


@hypothesis.given(st.lists(messages, max_size=6), st.integers(0, 20))
def test_random_messages_come_back_exactly(chat: list[Any], more: int) -> None:
    """All kinds, in short and long lists, alone and in tags, with all that pydantic keeps."""
    state = {"messages": chat + CHAT * more, "first": chat[:1], "pair": tuple(chat[:2])}
    assert same(roundtrip(state), state)


@hypothesis.given(messages, st.sampled_from(["name", "id", "content", "additional_kwargs"]), values)
def test_fields_that_a_program_has_changed_come_back(message: Any, name: str, value: Any) -> None:
    """Neither the class's validators nor its defaults decide about what comes back."""
    if name in type(message).model_fields:
        message.__dict__[name] = value
    message.__pydantic_fields_set__.discard(name)
    assert same(roundtrip([message] * 20), [message] * 20)


@pytest.mark.parametrize("more", [{}, {"extra": 1}])
@pytest.mark.parametrize(
    ("name", "value"),
    [("additional_kwargs", collections.OrderedDict()), ("tool_calls", ()), ("name", False)],
)
def test_what_only_looks_like_a_default_comes_back_as_what_it_is(
    name: str, value: Any, more: dict[str, Any]
) -> None:
    message = AIMessage("x", **more)
    message.__dict__[name] = value
    assert same(roundtrip(message), message)
    assert same(roundtrip([message] * 20), [message] * 20)


@pytest.mark.parametrize("value", [*CHAT, *OTHERS], ids=lambda value: type(value).__name__)
def test_each_kind_comes_back_alone(value: Any) -> None:
    assert same(roundtrip(value), value)


def test_the_comparison_of_these_tests_sees_differences() -> None:
    """Which fields were set, an empty container of another type, an extra field."""
    one, other = HumanMessage("x"), HumanMessage("x", additional_kwargs={})
    assert one == other
    assert not same(one, other)
    assert not same(HumanMessage("x", a=(1,)), HumanMessage("x", a=[1]))


def test_a_message_is_written_short_and_readably() -> None:
    data, tagged, _ = codec.encode(CHAT[1])
    assert tagged
    assert data == b'{"$langchain.HumanMessage":{"content":"How warm is it in Oslo?","id":"h1"}}'


def test_a_chat_takes_hardly_more_room_than_its_plain_json() -> None:
    chat: list[BaseMessage] = []
    for number in range(10):
        chat += [
            HumanMessage(f"question {number} " + "x" * 80, id=f"h{number}"),
            AIMessage(f"answer {number} " + "y" * 200, id=f"a{number}"),
        ]
    plain = orjson.dumps([{"role": m.type, "content": m.content, "id": m.id} for m in chat])
    assert len(codec.encode(chat).data) < 1.3 * len(plain)


def test_containers_are_fresh_for_each_message() -> None:
    one, other = roundtrip([HumanMessage("a"), HumanMessage("b")])
    one.additional_kwargs["x"] = 1
    assert other.additional_kwargs == {}
    assert roundtrip(HumanMessage("c")).additional_kwargs == {}


def test_a_class_of_the_program_comes_back_as_such() -> None:
    note = Note(content="n", weight=0.5, id="1", more=(1,))
    assert same(roundtrip([note]), [note])


@pytest.mark.parametrize("count", [1, 40, 400])
def test_a_leaf_that_cannot_be_kept_is_named_by_its_own_path(count: int) -> None:
    """The path leads to the leaf inside of the message, not to the message (SER-02)."""
    chat: list[Any] = [*CHAT[:3], *[HumanMessage("x")] * count]
    chat[3] = HumanMessage("x", additional_kwargs={"client": object()})
    with pytest.raises(UnserialisableState) as caught:
        checkpoint("run", {"messages": chat})
    assert caught.value.path == "$.messages[3].additional_kwargs.client"
    assert "builtins.object" not in str(caught.value)
    assert "object" in str(caught.value)


def test_a_leaf_in_an_extra_field_is_named_by_its_own_path() -> None:
    with pytest.raises(UnserialisableState) as caught:
        codec.encode([HumanMessage("x", client=[object()])])
    assert caught.value.path == "$[0].client[0]"


def test_a_module_in_a_state_with_messages_is_named_by_its_key() -> None:
    """SER-09: the names of a program's `exec` hold what it has imported."""
    checkpoint("run", {"messages": CHAT, "names": {}}, "before")
    with pytest.raises(UnserialisableState, match=r"\$\.names\.json: .*module") as caught:
        checkpoint("run", {"messages": CHAT, "names": {"json": types.ModuleType("json")}})
    assert caught.value.path == "$.names.json"
    assert same(load("run"), {"messages": CHAT, "names": {}})


def test_a_conversation_of_a_plain_program_grows_by_patches() -> None:
    """Saved again and again, each state comes back, types included."""
    chat: list[Any] = []
    for number in range(60):
        chat += [HumanMessage(f"q{number} " + "x" * 300), *CHAT[2:]]
        checkpoint("run", {"messages": chat, "n": number})
    assert same(load("run"), {"messages": chat, "n": 59})
    assert same(load("run", at=30), {"messages": chat[: 30 * 4], "n": 29})


@pytest.mark.parametrize(
    ("stored", "path", "problem"),
    [
        ({"content": "x", "gone": 1}, "$[0]", "gone"),
        ({"id": "x"}, "$[0]", "content"),
        ({"content": "x", "_extra": {}}, "$[0]", "malformed"),
        ({"content": "x", "_set": "content"}, "$[0]", "wrong set"),
        ({"content": "x", "_private": {"a": 1}}, "$[0]", "private"),
        (
            {"content": "x", "additional_kwargs": {"a": {"$tuple": 1}}},
            "$[0].additional_kwargs.a",
            "list",
        ),
        ([], "$[0]", "no fields"),
    ],
)
def test_what_no_longer_fits_is_refused_with_its_path(stored: Any, path: str, problem: str) -> None:
    tree = [{"$langchain.HumanMessage": stored}]
    with pytest.raises(SchemaMismatch, match=problem) as caught:
        codec.decode_tree(tree)
    assert caught.value.path == path


def test_an_unknown_message_says_what_to_call() -> None:
    tree = {"m": {"$langchain.Strange": {"content": "x"}}}
    with pytest.raises(UnknownType, match=r"\$\.m: .*caravanserai\.langchain\.register\(\)"):
        codec.decode_tree(tree)


def test_a_dict_of_the_tags_shape_stays_a_dict() -> None:
    state = {"$langchain.HumanMessage": {"content": "x"}}
    assert roundtrip([state, *CHAT]) == [state, *CHAT]
    assert roundtrip({"a": [state] * 50}) == {"a": [state] * 50}


def test_a_message_stored_before_its_class_was_registered_is_read() -> None:
    """Without `register` it is any pydantic model; the tag does not take that away."""
    stored = {
        "$object": {
            "type": "langchain_core.messages.human:HumanMessage",
            "kind": "pydantic",
            "value": {
                "fields": {**HumanMessage("x").__dict__},
                "set": ["content"],
                "extra": {},
            },
        }
    }
    assert same(codec.decode_tree(stored), HumanMessage("x"))


def test_the_tables_say_what_langchain_does() -> None:
    """The defaults of langchain-core 1.8; a change there needs no change of what is stored."""
    for cls, table in TABLES.items():
        fields: dict[str, Any] = cls.model_fields  # type: ignore[attr-defined]
        defaults = {
            name: field.get_default(call_default_factory=True)
            for name, field in fields.items()
            if not field.is_required()
        }
        assert dict(sorted(table.items())) == dict(sorted(defaults.items())), cls


def test_every_message_class_of_langchain_has_a_tag() -> None:
    found = {
        value
        for name in langchain_core.messages.__all__
        if isinstance(value := getattr(langchain_core.messages, name), type)
        and issubclass(value, BaseMessage)
    }
    assert found <= TABLES.keys()


def test_a_default_that_langchain_changes_does_not_change_what_was_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, tagged, _ = codec.encode(ToolMessage("x", tool_call_id="c"))
    monkeypatch.setattr(ToolMessage.model_fields["status"], "default", "done")
    assert codec.decode(data, tagged).status == "success"  # type: ignore[attr-defined]


def test_importing_the_adapter_imports_no_langchain() -> None:
    code = (
        "import sys, caravanserai.langchain, caravanserai.langchain.transcript;"
        "assert not {'langchain', 'langchain_core', 'pydantic'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_langchain_is_one_sentence() -> None:
    code = (
        "import sys\n"
        "class Nowhere:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'langchain_core': raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Nowhere())\n"
        "from caravanserai import langchain\n"
        "try: langchain.register()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == (
        'langchain-core is not installed: pip install "caravanserai[langchain]"'
    )


def test_a_broken_import_inside_of_langchain_is_not_called_missing() -> None:
    code = (
        "import sys; sys.modules['langchain_core.documents'] = None\n"
        "from caravanserai import langchain\n"
        "try: langchain.register()\n"
        "except ImportError as error: print(error.name)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "langchain_core.documents"


@hypothesis.given(texts)
def test_lone_surrogates_in_a_long_chat_come_back(text: str) -> None:
    chat = [*CHAT * 20, HumanMessage.model_construct(content=text + "\ud800")]
    assert same(roundtrip(chat), chat)


def test_the_text_of_a_message_is_kept_by_itself() -> None:
    """It is a str of a class of LangChain's own."""
    langchain.register()
    text = AIMessage("Seven degrees.").text
    encoded = codec.encode({"answer": text, "said": [text]})

    found = codec.decode(encoded.data, encoded.tagged)

    assert found == {"answer": "Seven degrees.", "said": ["Seven degrees."]}
    assert type(found["answer"]) is type(text)
    told = codec.encode({"messages": [("user", text)]})
    assert messages_of(orjson.loads(told.data)).messages[0].text == "Seven degrees."
