"""Every endpoint of Anthropic's Python client that this server has, streamed and not.

  pip install anthropic
  vitrine serve --template bench/clients/chat_template.jinja --port 8080
  python bench/clients/anthropic_client.py http://127.0.0.1:8080
"""
import sys

import anthropic

base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
client = anthropic.Anthropic(base_url=base, api_key=sys.argv[2] if len(sys.argv) > 2 else "none", max_retries=0)
checks = 0


def check(holds, what):
    global checks
    checks += 1
    if not holds:
        raise SystemExit(f"failed: {what}")


def refused(call, kind):
    try:
        call()
    except kind:
        return check(True, "")
    raise SystemExit(f"not refused, expected {kind.__name__}")


model = client.models.list().data[0].id
greedy = dict(model=model, max_tokens=16, extra_body={"temperature": 0}, system="You tell tales.", messages=[{"role": "user", "content": "Tell one."}])
whole = client.messages.create(**greedy)
check(whole.type == "message" and whole.content[0].type == "text" and whole.content[0].text, "an answer")
check(whole.stop_reason in ("end_turn", "max_tokens"), "its end")
count = client.messages.count_tokens(model=model, system=greedy["system"], messages=greedy["messages"])
check(count.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens, "tokens are counted")

events = list(client.messages.create(**greedy, stream=True))
check([e.type for e in events][0] == "message_start" and [e.type for e in events][-1] == "message_stop", "the order of events")
check("".join(e.delta.text for e in events if e.type == "content_block_delta") == whole.content[0].text, "the same answer streamed")
with client.messages.stream(**greedy) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
check(text == whole.content[0].text and final.content[0].text == text, "the client's own collection of a stream")
check(final.usage.output_tokens == whole.usage.output_tokens, "usage in a stream")

stopped = client.messages.create(**greedy, stop_sequences=[whole.content[0].text[4:7]])
check(stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == whole.content[0].text[4:7], "stop_sequences")
begun = client.messages.create(**{**greedy, "messages": greedy["messages"] + [{"role": "assistant", "content": "Once"}]})
check(begun.content[0].text is not None, "an answer that was begun")
blocks = client.messages.create(**{**greedy, "system": [{"type": "text", "text": "You tell tales.", "cache_control": {"type": "ephemeral"}}],
                                   "messages": [{"role": "user", "content": [{"type": "text", "text": "Tell one."}]}]})
check(blocks.content[0].text == whole.content[0].text, "blocks of text")
check("system[0].cache_control" in blocks.model_extra["ignored_fields"], "what changes nothing is named")
tool = {"name": "weather", "description": "Tells the weather.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
check(client.messages.create(**greedy, tools=[tool]).stop_reason in ("end_turn", "max_tokens", "tool_use"), "tools")
history = greedy["messages"] + [
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ulm"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}, {"type": "text", "text": "Well?"}]},
]
check(client.messages.create(**{**greedy, "messages": history}, tools=[tool]).content is not None, "a result of a tool")
# Thinking and a call, in a text that a grammar dictates
dictated = r'''root ::= "<think>They ask.</think>I look.\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}</tool_call>"'''
spoken = {**greedy, "max_tokens": 200, "tools": [tool], "extra_body": {"temperature": 0, "grammar": dictated}}
said = client.messages.create(**spoken)
check([b.type for b in said.content] == ["thinking", "text", "tool_use"] and said.stop_reason == "tool_use", "blocks of thinking, text and a call")
check(said.content[0].thinking == "They ask." and said.content[2].input == {"city": "Ulm"}, "what they say")
with client.messages.stream(**spoken) as stream:
    events = list(stream)
    final = stream.get_final_message()
check([b.type for b in final.content] == ["thinking", "text", "tool_use"] and final.content[2].input == {"city": "Ulm"}, "the client's own collection of blocks")
check("".join(e.thinking for e in events if e.type == "thinking") == "They ask.", "the same thinking streamed")
check(sum(e.type == "input_json" for e in events) > 1, "the input in pieces")
returned = greedy["messages"] + [{"role": "assistant", "content": [b.model_dump() for b in final.content]},
                                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": final.content[2].id, "content": "sunny"}]}]
check(client.messages.create(**{**greedy, "messages": returned}, tools=[tool]).content is not None, "blocks given back")
refused(lambda: client.messages.create(**{**greedy, "model": "nothing"}), anthropic.NotFoundError)
refused(lambda: client.messages.create(**{**greedy, "max_tokens": 0}), anthropic.BadRequestError)
refused(lambda: client.messages.create(**{**greedy, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]}), anthropic.BadRequestError)
thinks = client.messages.create(**greedy, thinking={"type": "enabled", "budget_tokens": 1024})
check(thinks.model_extra["ignored_fields"] == ["thinking"], "thinking is named as ignored")

print(f"anthropic {anthropic.__version__}: {checks} checks hold")
