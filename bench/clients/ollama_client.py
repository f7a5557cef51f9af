"""ollama and langchain-ollama against a running server, streamed and not.

  pip install ollama langchain-ollama
  vitrine serve --template bench/clients/chat_template.jinja --port 8080
  python bench/clients/ollama_client.py http://127.0.0.1:8080
"""
import json
import math
import sys

import ollama
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM

host = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
headers = {"Authorization": f"Bearer {sys.argv[2]}"} if len(sys.argv) > 2 else {}
client = ollama.Client(host=host, headers=headers)
PROMPT = "Once upon a time"
MESSAGES = [{"role": "system", "content": "You tell tales."}, {"role": "user", "content": "Tell one."}]
GREEDY = {"temperature": 0, "num_predict": 16}
SCHEMA = {"type": "object", "properties": {"age": {"enum": [7, 70]}}, "required": ["age"], "additionalProperties": False}
checks = 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        raise SystemExit(f"failed: {what}")


def refused(call, status, words):
    try:
        call()
    except ollama.ResponseError as error:
        check(error.status_code == status, f"status {error.status_code}, expected {status}: {error}")
        check(words in error.error, f"{words!r} in {error.error!r}")
        return
    raise SystemExit(f"not refused, expected {status}")


def weather(city: str) -> str:
    """Tells the weather.

    Args:
      city: The city's name.
    """
    return f"rain in {city}"


# Models
listed = client.list().models
check(len(listed) == 1 and listed[0].size > 0 and listed[0].modified_at is not None, "one model")
model = listed[0].model
check(model.endswith(":latest"), "a name with its tag")
shown = client.show(model)
check(shown.details.family == shown.modelinfo["general.architecture"], "the family")
check("completion" in shown.capabilities, "capabilities")
running = client.ps().models
check(running[0].name == model and running[0].context_length > 0 and running[0].expires_at is not None, "the running model")
refused(lambda: client.show("nothing"), 404, "not found")

# Chats
whole = client.chat(model, MESSAGES, options=GREEDY)
check(whole.message.role == "assistant" and whole.message.content and whole.done, "an answer")
check(whole.eval_count <= 16 and whole.prompt_eval_count > 0 and whole.total_duration > 0, "counts and durations")
check(client.chat(model.removesuffix(":latest"), MESSAGES, options=GREEDY).message.content == whole.message.content, "a name without its tag")
parts = list(client.chat(model, MESSAGES, stream=True, options=GREEDY))
check("".join(p.message.content for p in parts) == whole.message.content, "the same answer streamed")
check([p.done for p in parts] == [False] * (len(parts) - 1) + [True], "the last part is the end")
check(parts[-1].done_reason == whole.done_reason and parts[-1].eval_count == whole.eval_count, "the same end streamed")
made = client.chat(model, MESSAGES, format=SCHEMA, options={"num_predict": 64})
check(json.loads(made.message.content)["age"] in (7, 70), "a schema")
check(client.chat(model, MESSAGES, tools=[weather], options=GREEDY).done, "tools")
called = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Ulm"}}}]}, {"role": "tool", "tool_name": "weather", "content": "rain"}]
check(client.chat(model, called, tools=[weather], options=GREEDY).done, "the result of a tool")
check(client.chat(model, MESSAGES, think=False, options=GREEDY).message.content == whole.message.content, "without thoughts")
if "thinking" in shown.capabilities:  # by the chat template
    check(client.chat(model, MESSAGES, think=True, options=GREEDY).done, "with thoughts")
else:
    refused(lambda: client.chat(model, MESSAGES, think=True), 400, "does not support thinking")
refused(lambda: client.chat(model, [{**MESSAGES[1], "images": [b"a"]}]), 400, "images")
refused(lambda: client.chat("nothing", MESSAGES), 404, "not found")
refused(lambda: list(client.chat(model, MESSAGES, stream=True, options={"top_p": 2})), 400, "top_p")

# Texts
text = client.generate(model, PROMPT, raw=True, options=GREEDY)
check(text.response and text.context is None, "a raw prompt")
check("".join(p.response for p in client.generate(model, PROMPT, raw=True, stream=True, options=GREEDY)) == text.response, "the same text streamed")
first = client.generate(model, PROMPT, system="You tell tales.", options=GREEDY)
check(client.generate(model, PROMPT, context=first.context, options=GREEDY).prompt_eval_count > len(first.context), "a context")
stopped = client.generate(model, PROMPT, raw=True, options={**GREEDY, "stop": [text.response[5:8]]})
check(text.response.startswith(stopped.response) and stopped.done_reason == "stop", "stop")
seeded = [client.generate(model, PROMPT, options={"seed": 3, "num_predict": 16}).response for _ in range(2)]
check(seeded[0] == seeded[1], "a seed")
check(json.loads(client.generate(model, PROMPT, format=SCHEMA).response)["age"] in (7, 70), "a schema")
scored = client.generate(model, PROMPT, raw=True, logprobs=True, top_logprobs=2, options=GREEDY)
check(len(scored.logprobs) > 0 and all(len(x.top_logprobs) == 2 for x in scored.logprobs), "log-probabilities")
check(client.generate(model).done_reason == "load", "loading")
refused(lambda: client.generate(model, PROMPT, template="{{ .Prompt }}"), 400, "template")
refused(lambda: client.generate(model, PROMPT, suffix="end"), 400, "suffix")

# Embeddings
vectors = client.embed(model, ["a dog", "a cat"]).embeddings
check(len(vectors) == 2 and math.isclose(sum(x * x for x in vectors[0]), 1, rel_tol=1e-4), "embeddings")
check(client.embed(model, "a dog").embeddings[0] == vectors[0], "an embedding")
check(list(client.embeddings(model, "a dog").embedding) == list(vectors[0]), "the former endpoint")

# Models are not changed
refused(lambda: client.pull("nothing"), 501, "vitrine pull")
refused(lambda: client.push("nothing"), 501, "one model")
refused(lambda: client.copy(model, "other"), 501, "--alias")
refused(lambda: client.delete(model), 501, "end the server")
refused(lambda: client.create("other", from_=model), 501, "vitrine convert")
direct = checks

# LangChain
chat = ChatOllama(model=model, base_url=host, client_kwargs={"headers": headers}, temperature=0, num_predict=16)
prompt = [SystemMessage("You tell tales."), HumanMessage("Tell one.")]
answer = chat.invoke(prompt)
check(answer.content == whole.message.content and answer.usage_metadata["output_tokens"] == whole.eval_count, "langchain: the same answer")
check("".join(p.content for p in chat.stream(prompt)) == whole.message.content, "langchain: the same answer streamed")
check(len(chat.batch([prompt, prompt])) == 2, "langchain: several at once")
check(json.loads(ChatOllama(model=model, base_url=host, client_kwargs={"headers": headers}, format=SCHEMA).invoke(prompt).content)["age"] in (7, 70), "langchain: a schema")
calls = [{"name": "weather", "args": {"city": "Ulm"}, "id": "1"}]
check(chat.bind_tools([weather]).invoke([*prompt, AIMessage("", tool_calls=calls), ToolMessage("rain", tool_call_id="1")]).content is not None, "langchain: tools")
check(OllamaLLM(model=model, base_url=host, client_kwargs={"headers": headers}, temperature=0, num_predict=8).invoke(PROMPT) != "", "langchain: a text")
embedded = OllamaEmbeddings(model=model, base_url=host, client_kwargs={"headers": headers}).embed_documents(["a dog", "a cat"])
check(embedded[0] == list(vectors[0]) and len(embedded) == 2, "langchain: embeddings")
print(f"ollama: {direct} checks hold; langchain-ollama: {checks - direct}")
