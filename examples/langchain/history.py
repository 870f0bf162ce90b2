"""A chat that remembers, over any number of starts: LangChain with `WaypointChatMessageHistory`.

python examples/langchain/history.py "The train costs 62 EUR."
python examples/langchain/history.py "The bus costs 45 EUR."
python examples/langchain/history.py "Which one is cheaper?"     The bus.
caravanserai log chat-langchain                                  every turn, readable

`model` stands for `ChatOpenAI(…)`: it asks a scripted model, with `--real` OpenAI.
"""

import sys
from pathlib import Path

from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

import trip

from caravanserai.langchain import WaypointChatMessageHistory


def model(prompt):
    (said,) = convert_to_messages([trip.chat(convert_to_openai_messages(prompt.to_messages()))])
    return said


prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{said}")])
chain = RunnableWithMessageHistory(
    prompt | RunnableLambda(model),
    WaypointChatMessageHistory,
    input_messages_key="said",
    history_messages_key="history",
)
config = {"configurable": {"session_id": "chat-langchain"}}
with trip.openai(trip.talk):
    print(chain.invoke({"said": trip.words("Which one is cheaper?")}, config).content)
