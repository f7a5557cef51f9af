"""Objects of the forms in which data for fine-tuning comes, as trl's SFTTrainer makes ids and labels of them with the tokenizer of
models/tales9m: forms.json. Alpaca's and ShareGPT's are converted to prompts with completions and to messages here.

usage: make_forms.py   (trl 1.16.0, transformers 5.24.0)
"""
import json, pathlib, tempfile
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}assistant\n{% generation %}{{ m.content }}<eos>"
    "{% endgeneration %}\n{% else %}{{ m.role }}\n{{ m.content }}<eos>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}"
)
ALPACA = {
    True: "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that "
          "appropriately completes the request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
    False: "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
           "### Instruction:\n{instruction}\n\n### Response:\n",
}
ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def say(role, content):
    return {"role": role, "content": content}


def alpaca(line):
    return {"prompt": ALPACA[bool(line.get("input"))].format(**line), "completion": line["output"]}


def sharegpt(line):
    turns = [say(ROLES[t["from"]], t["value"]) for t in line["conversations"]]
    return {"messages": ([say("system", line["system"])] if "system" in line else []) + turns}


FOX = [say("user", "Tell me of the fox."), say("assistant", "The fox saw a crow.")]
# The lines, whether texts become messages, and what TRL gets for each.
CASES = [
    ([{"prompt": "The fox saw", "completion": " a crow."}, {"prompt": "The fox s", "completion": "aw a crow, naïve as ever."},
      {"prompt": "Once upon a ti", "completion": "me there was a king.<eos>"}, {"prompt": "", "completion": "The king"},
      {"prompt": "A line\n", "completion": "\nof text"}, {"prompt": "It was the lion", "completion": "ess and the fox"}], False, dict),
    ([{"prompt": FOX[:1], "completion": FOX[1:]},
      {"prompt": [say("system", "Be brief."), *FOX, say("user", "And then?")], "completion": [say("assistant", "It went home.")]}],
     False, dict),
    ([{"prompt": "Tell me of the fox.", "completion": "The fox saw a crow."}], True,
     lambda line: {"prompt": [say("user", line["prompt"])], "completion": [say("assistant", line["completion"])]}),
    ([{"instruction": "Name the animal.", "input": "The fox saw a crow.", "output": "fox"},
      {"instruction": "Tell a tale.", "input": "", "output": "Once upon a time.\n\nThe end.", "text": "…"},
      {"instruction": "Tell a tale.", "output": "Once."}], False, alpaca),
    ([{"instruction": "Name the animal.", "input": "The fox saw a crow.", "output": "fox"}], True,
     lambda line: {"prompt": [say("user", line["instruction"] + "\n" + line["input"])], "completion": [say("assistant", line["output"])]}),
    ([{"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}, {"from": "human", "value": "And then?"},
                         {"from": "gpt", "value": "It went home: 12 × 3."}], "id": "a"},
      {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}], "system": "Be brief."},
      {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]},
      ], False, sharegpt),
]


def labels_of(converted):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "tales9m")
    tokenizer.chat_template = TEMPLATE
    conversation = "messages" in converted
    with tempfile.TemporaryDirectory() as out:
        trainer = SFTTrainer(
            model=AutoModelForCausalLM.from_pretrained(ROOT / "models" / "tales9m"),
            args=SFTConfig(out, use_cpu=True, bf16=False, gradient_checkpointing=False, max_length=None, report_to="none",
                           assistant_only_loss=conversation),
            train_dataset=Dataset.from_list([converted]), processing_class=tokenizer)
        row = trainer.train_dataset[0]
        batch = trainer.data_collator([row])
    return batch["input_ids"][0].tolist(), [int(label != -100) for label in batch["labels"][0].tolist()]


cases = []
for lines, as_messages, convert in CASES:
    for line in lines:
        ids, scored = labels_of(convert(line))
        cases.append({"line": line, "as_messages": as_messages, "ids": ids, "scored": scored})
(HERE / "forms.json").write_text(json.dumps({"template": TEMPLATE, "cases": cases}) + "\n")
