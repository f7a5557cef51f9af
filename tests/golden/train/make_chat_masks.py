"""Conversations through chat templates with {% generation %}, as transformers' apply_chat_template(return_assistant_tokens_mask)
gives ids and masks with the tokenizer of models/tales9m: chat_masks.json.

usage: make_chat_masks.py   (transformers 5.24.0)
"""
import json, pathlib
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).parent
TURNS = [
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}assistant\n{% generation %}{{ m.content }}<eos>"
    "{% endgeneration %}\n{% else %}{{ m.role }}\n{{ m.content }}<eos>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}",
    # The block begins in the middle of a word and ends before white space; one turn calls a tool.
    "{{- bos_token }}\n{%- for message in messages %}\n    {%- if message['role'] == 'assistant' %}\n        {{- ' [an' }}\n"
    "        {%- generation %}\n        {{- 'swer] ' + message['content'] }}\n        {%- if message.tool_calls %}\n"
    "            {%- for call in message.tool_calls %}{{ call.name }}({{ call.arguments | tojson }}){% endfor %}\n"
    "        {%- endif %}\n        {%- endgeneration %}\n        {{- ' \\n' }}\n    {%- else %}\n"
    "        {{- '[' + message['role'] + '] ' + message['content'] + '\\n' }}\n    {%- endif %}\n{%- endfor %}\n",
    # Only the last turn is marked.
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {% if loop.last and m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}",
]
CONVERSATIONS = [
    [{"role": "user", "content": "Tell me of the fox."}, {"role": "assistant", "content": "The fox saw a crow."},
     {"role": "user", "content": "And then?"}, {"role": "assistant", "content": "It went home, naïve as ever: 12 × 3."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}],
    [{"role": "user", "content": "Weather?"},
     {"role": "assistant", "content": "", "tool_calls": [{"name": "look", "arguments": {"where": "wood", "days": 2}}]},
     {"role": "tool", "content": "rain"}, {"role": "assistant", "content": "It rains."}],
]

tokenizer = AutoTokenizer.from_pretrained(HERE.parents[2] / "models" / "tales9m")
cases = []
for template in TURNS:
    for messages in CONVERSATIONS:
        told = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True,
                                             return_assistant_tokens_mask=True)
        cases.append({"template": template, "messages": messages, "ids": told["input_ids"], "mask": told["assistant_masks"]})
(HERE / "chat_masks.json").write_text(json.dumps(cases) + "\n")
