"""litellm (its openai/, anthropic/ and ollama/ routes) and langchain-openai against a running server, streamed and not.

  pip install litellm langchain-openai
  vitrine serve --template bench/clients/chat_template.jinja --port 8080
  python bench/clients/further_clients.py http://127.0.0.1:8080/v1
"""
import json
import sys
import urllib.request

import litellm
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
key = sys.argv[2] if len(sys.argv) > 2 else "none"
request = urllib.request.Request(base + "/models", headers={"Authorization": f"Bearer {key}"})
model = json.load(urllib.request.urlopen(request))["data"][0]["id"]
messages = [{"role": "system", "content": "You tell tales."}, {"role": "user", "content": "Tell one."}]
checks = 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        raise SystemExit(f"failed: {what}")


common = dict(model=f"openai/{model}", api_base=base, api_key=key, temperature=0, max_tokens=16)
whole = litellm.completion(messages=messages, **common)
answer = whole.choices[0].message.content
check(answer and whole.usage.completion_tokens > 0, "litellm: an answer")
parts = list(litellm.completion(messages=messages, stream=True, stream_options={"include_usage": True}, **common))
check("".join(p.choices[0].delta.content or "" for p in parts if p.choices) == answer, "litellm: the same answer streamed")
check(litellm.text_completion(prompt="Once", **{**common, "model": f"text-completion-openai/{model}"}).choices[0].text, "litellm: a completion")
check(len(litellm.embedding(model=f"openai/{model}", input=["a", "b"], api_base=base, api_key=key, encoding_format="float").data) == 2, "litellm: embeddings")
try:
    litellm.completion(messages=messages, **{**common, "temperature": -1})
    raise SystemExit("litellm: not refused")
except litellm.BadRequestError:
    check(True, "")

# The same model by litellm's other routes: Anthropic's messages, and Ollama's chats, texts and embeddings.
host = base.removesuffix("/v1")
limits = dict(api_base=host, api_key=key, temperature=0, max_tokens=16)
for route in ("anthropic", "ollama_chat", "ollama"):
    asked = dict(model=f"{route}/{model}", messages=messages, **limits)
    made = litellm.completion(**asked)
    text = made.choices[0].message.content
    check(text and made.usage.completion_tokens > 0 and made.usage.prompt_tokens > 0, f"litellm {route}: an answer")
    check(text == answer or route == "ollama", f"litellm {route}: the same answer")  # ollama/ writes the prompt itself
    streamed = "".join(p.choices[0].delta.content or "" for p in litellm.completion(stream=True, **asked) if p.choices)
    check(streamed == text, f"litellm {route}: the same answer streamed")
    schema = {"type": "object", "properties": {"age": {"enum": [7, 70]}}, "required": ["age"], "additionalProperties": False}
    if route != "anthropic":
        form = {"type": "json_schema", "json_schema": {"name": "age", "schema": schema}}
        made = litellm.completion(**{**asked, "max_tokens": 64, "response_format": form})
        check(json.loads(made.choices[0].message.content)["age"] in (7, 70), f"litellm {route}: a schema")
    try:
        litellm.completion(**{**asked, "model": f"{route}/nothing"})
        raise SystemExit(f"litellm {route}: an unknown model is not refused")
    except (litellm.NotFoundError, litellm.APIConnectionError):  # the latter: its ollama routes do not sort statuses
        check(True, "")
tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Ulm"]}}, "required": ["city"]}}}
made = litellm.completion(model=f"anthropic/{model}", messages=messages, tools=[tool], tool_choice="required", **{**limits, "max_tokens": 128})
check(json.loads(made.choices[0].message.tool_calls[0].function.arguments) == {"city": "Ulm"}, "litellm anthropic: a call of a tool")
check(len(litellm.embedding(model=f"ollama/{model}", input=["a", "b"], api_base=host).data) == 2 or key != "none", "litellm ollama: embeddings")

chat = ChatOpenAI(model=model, base_url=base, api_key=key, temperature=0, max_tokens=16, max_retries=0, stream_usage=True)
prompt = [SystemMessage("You tell tales."), HumanMessage("Tell one.")]
made = chat.invoke(prompt)
check(made.content == answer and made.usage_metadata["output_tokens"] > 0, "langchain: the same answer")
check("".join(p.content for p in chat.stream(prompt)) == answer, "langchain: the same answer streamed")
check(len(chat.batch([prompt, prompt])) == 2, "langchain: several at once")
check(OpenAI(model=model, base_url=base, api_key=key, temperature=0, max_tokens=8).invoke("Once") != "", "langchain: a completion")
vectors = OpenAIEmbeddings(model=model, base_url=base, api_key=key, check_embedding_ctx_length=False).embed_documents(["a", "b"])
check(len(vectors) == 2 and len(vectors[0]) == len(vectors[1]), "langchain: embeddings")
print(f"litellm and langchain-openai: {checks} checks hold")
