"""chat.json: conversations by chat templates, as transformers writes and tokenizes them.

usage: make_chat.py
needs: transformers, jinja2 (made with transformers 5.24.0)

A list of {"model", "template", "arguments", "text", "ids"}: arguments are those of apply_chat_template.
"""
import json
import pathlib
import transformers

HERE = pathlib.Path(__file__).parent
SYSTEM = {"role": "system", "content": "You tell stories."}
TALK = [{"role": "user", "content": "Who was the king?"}, {"role": "assistant", "content": "He had three sons."}, {"role": "user", "content": "And then — nothing?"}]
TOOL = {"type": "function", "function": {"name": "look_up", "description": "A word", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}}
CASES = [
    ("chatml.jinja", {"conversation": TALK}),
    ("chatml.jinja", {"conversation": [SYSTEM, *TALK], "add_generation_prompt": True}),
    ("chatml.jinja", {"conversation": TALK[:2], "continue_final_message": True}),
    ("llama2.jinja", {"conversation": TALK, "add_generation_prompt": True}),
    ("qwen.jinja", {"conversation": TALK, "tools": [TOOL], "add_generation_prompt": True, "enable_thinking": False}),
]

found = []
tokenizer = transformers.AutoTokenizer.from_pretrained(HERE.parent / "models/gemma/model")
for name, arguments in CASES:
    template = (HERE.parent / "jinja/templates" / name).read_text(encoding="utf-8")
    text = tokenizer.apply_chat_template(**arguments, chat_template=template, tokenize=False)
    ids = tokenizer.apply_chat_template(**arguments, chat_template=template, return_dict=False)
    found.append({"model": "gemma", "template": name, "arguments": arguments, "text": text, "ids": ids})
(HERE / "chat.json").write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
