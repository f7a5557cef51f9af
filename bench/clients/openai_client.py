"""Every endpoint of OpenAI's Python client against a running server, streamed and not.

  pip install openai
  vitrine serve --template bench/clients/chat_template.jinja --port 8080
  python bench/clients/openai_client.py http://127.0.0.1:8080/v1
"""
import base64
import struct
import sys

import openai

base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
client = openai.OpenAI(base_url=base, api_key=sys.argv[2] if len(sys.argv) > 2 else "none", max_retries=0)
PROMPT = "Once upon a time"
checks = 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        raise SystemExit(f"failed: {what}")


def refused(call, status, param=None):
    try:
        call()
    except openai.APIStatusError as error:
        check(error.status_code == status, f"status {error.status_code}, expected {status}: {error}")
        if param is not None:
            check(error.param == param, f"param {error.param}, expected {param}")
        return
    raise SystemExit(f"not refused, expected {status}")


# Models
models = client.models.list().data
check(len(models) == 1, "one model")
model = models[0].id
check(client.models.retrieve(model).id == model, "the model by its name")
refused(lambda: client.models.retrieve("nothing"), 404)

# Completions
greedy = dict(model=model, prompt=PROMPT, max_tokens=16, temperature=0)
whole = client.completions.create(**greedy)
check(whole.choices[0].text != "" and whole.usage.completion_tokens <= 16, "a completion")
chunks = list(client.completions.create(**greedy, stream=True, stream_options={"include_usage": True}))
check("".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text, "the same text streamed")
check(chunks[-1].usage.completion_tokens == whole.usage.completion_tokens, "usage in a stream")
several = client.completions.create(model=model, prompt=[PROMPT, "The dog"], n=2, max_tokens=8, temperature=1, seed=3, logprobs=2, echo=True)
check([c.index for c in several.choices] == [0, 1, 2, 3], "two prompts, two choices each")
check(several.choices[0].text != several.choices[1].text, "choices differ")
check(several.choices[0].logprobs.token_logprobs[0] is None, "the first token has no log-probability")
check(len(several.choices[0].logprobs.tokens) == len(several.choices[0].logprobs.top_logprobs), "as many top_logprobs as tokens")
stopped = client.completions.create(**greedy, stop=whole.choices[0].text[5:8])
check(whole.choices[0].text.startswith(stopped.choices[0].text) and stopped.choices[0].finish_reason == "stop", "stop")
refused(lambda: client.completions.create(**greedy, suffix="end"), 400, "suffix")
refused(lambda: client.completions.create(model="nothing", prompt="a"), 404, "model")

# Chat
messages = [{"role": "system", "content": "You tell tales."}, {"role": "user", "content": [{"type": "text", "text": "Tell one."}]}]
greedy = dict(model=model, messages=messages, max_completion_tokens=16, temperature=0)
whole = client.chat.completions.create(**greedy, logprobs=True, top_logprobs=2)
message = whole.choices[0].message
check(message.role == "assistant" and message.content, "an answer")
check(len(whole.choices[0].logprobs.content[0].top_logprobs) == 2, "top_logprobs")
chunks = list(client.chat.completions.create(**greedy, stream=True, stream_options={"include_usage": True}))
check(chunks[0].choices[0].delta.role == "assistant", "the role first")
check("".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == message.content, "the same answer streamed")
check(chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens, "usage in a stream")
with client.chat.completions.stream(**greedy, stop=message.content[9:12]) as stream:  # the client raises where the length ends an answer
    final = stream.get_final_completion()
check(final.choices[0].message.content == message.content[:message.content.index(message.content[9:12])], "the client's own collection of a stream")
choices = client.chat.completions.create(**{**greedy, "temperature": 1.2}, n=3, seed=1).choices
check(len({c.message.content for c in choices}) > 1, "three answers")
tool = {"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
check(client.chat.completions.create(**greedy, tools=[tool]).choices[0].finish_reason in ("stop", "length", "tool_calls"), "tools")
history = messages + [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
]
check(client.chat.completions.create(**{**greedy, "messages": history}, tools=[tool]).choices[0].message.content is not None, "a result of a tool")
refused(lambda: client.chat.completions.create(**{**greedy, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}), 400, "messages[0].content[0]")
refused(lambda: client.chat.completions.create(**greedy, response_format={"type": "nothing"}), 400)
again = client.chat.completions.create(**{**greedy, "messages": messages + [message.model_dump(), {"role": "user", "content": "On."}]})
check(again.choices[0].message.content is not None, "a message that the client gives back")

# Reasoning and calls of tools, in a text that a grammar dictates
dictated = r'''root ::= "<think>They ask.</think>I look.\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}</tool_call>"'''
spoken = dict(model=model, messages=messages, tools=[tool], temperature=0, max_completion_tokens=200, extra_body={"grammar": dictated})
said = client.chat.completions.create(**spoken)
answer = said.choices[0].message
check(answer.reasoning_content == "They ask." and answer.content == "I look.", "reasoning apart from the content")
check(answer.tool_calls[0].function.name == "weather" and answer.tool_calls[0].function.arguments == '{"city":"Ulm"}', "a call")
check(said.choices[0].finish_reason == "tool_calls" and said.usage.completion_tokens_details.reasoning_tokens > 0, "its end and its cost")
deltas = [c.choices[0].delta for c in client.chat.completions.create(**spoken, stream=True)]
check("".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "They ask.", "the same reasoning streamed")
check("".join(d.content or "" for d in deltas) == "I look.", "the same content streamed")
pieces = [d.tool_calls[0] for d in deltas if d.tool_calls]
check(pieces[0].function.name == "weather" and pieces[0].id and len(pieces) > 2, "the name of the call first")
check("".join(p.function.arguments for p in pieces) == '{"city":"Ulm"}', "then its arguments in pieces")
with client.chat.completions.stream(**spoken) as stream:
    events = list(stream)
    final = stream.get_final_completion().choices[0].message
check(final.tool_calls[0].function.arguments == '{"city":"Ulm"}' and final.content == "I look.", "the client's own collection of a call")
check(any(e.type == "tool_calls.function.arguments.delta" for e in events), "its events of arguments")
returned = messages + [answer.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "sunny"}]
again = client.chat.completions.create(**{**greedy, "messages": returned}, tools=[tool])
check("ignored_fields" not in again.model_extra, f"the call and its reasoning given back: {again.model_extra}")

# Embeddings
numbers = client.embeddings.create(model=model, input=[PROMPT, "The dog"], encoding_format="float").data
raw = client.embeddings.create(model=model, input=PROMPT, encoding_format="base64").data[0].embedding
raw = list(struct.unpack(f"<{len(base64.b64decode(raw)) // 4}f", base64.b64decode(raw))) if isinstance(raw, str) else raw
check(max(abs(a - b) for a, b in zip(raw, numbers[0].embedding)) < 1e-6, "both encodings")
check(abs(sum(x * x for x in numbers[1].embedding) - 1) < 1e-5, "length 1")
check(client.embeddings.create(model=model, input=PROMPT).data[0].embedding is not None, "the client's default encoding")

# Responses
greedy = dict(model=model, input="Tell one.", instructions="You tell tales.", max_output_tokens=16, temperature=0)
whole = client.responses.create(**greedy)
check(whole.output_text == message.content, "the same answer as in a chat")
events = list(client.responses.create(**greedy, stream=True))
check("".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text, "the same answer streamed")
check(events[-1].response.usage.output_tokens == whole.usage.output_tokens, "usage in a stream")
with client.responses.stream(**greedy) as stream:  # its get_final_response() wants an answer that no length has ended
    check("".join(e.delta for e in stream if e.type == "response.output_text.delta") == whole.output_text, "the client's own stream")
check(client.responses.create(**{**greedy, "input": [{"role": "user", "content": [{"type": "input_text", "text": "Tell one."}]}]}).output_text == whole.output_text, "items")
flat = {"type": "function", "name": "weather", "description": "Tells the weather.", "parameters": tool["function"]["parameters"]}
spoken = dict(model=model, input="Tell one.", tools=[flat], temperature=0, max_output_tokens=200, extra_body={"grammar": dictated})
output = client.responses.create(**spoken).output
check([o.type for o in output] == ["reasoning", "message", "function_call"], "items of reasoning, text and a call")
check(output[0].content[0].text == "They ask." and output[2].arguments == '{"city":"Ulm"}', "what they say")
with client.responses.stream(**spoken) as stream:
    events = list(stream)
    final = stream.get_final_response()
check("".join(e.delta for e in events if e.type == "response.reasoning_text.delta") == "They ask.", "the same reasoning streamed")
check("".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == '{"city":"Ulm"}', "the same arguments streamed")
check([o.type for o in final.output] == [o.type for o in output] and final.output[2].arguments == '{"city":"Ulm"}', "the client's own collection of items")
items = [{"role": "user", "content": "Tell one."}] + [o.model_dump(exclude_none=True) for o in output]
items.append({"type": "function_call_output", "call_id": output[2].call_id, "output": "sunny"})
check(client.responses.create(**{**greedy, "input": items}, tools=[flat]).output_text is not None, "items given back")
refused(lambda: client.responses.create(**greedy, previous_response_id="resp_1"), 400, "previous_response_id")

print(f"openai {openai.__version__}: {checks} checks hold")
