"""litellm and langchain-openai against a running server, streamed and not.

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
