"""A task for learning from rewards: close the brackets that are open. docs/reinforcement.md runs it.

brackets.py text      lines of random brackets, each with a period at its end: what the starting model learns from
brackets.py prompts   lines of {"prompt": "([", "answer": "])"}
brackets.py reward    reads such lines with a "completion", and prints a number for each: how much of the completion is right from
                      its beginning, as a share of what is longer, the completion or the answer; both with their periods
"""
import json, random, sys

PAIRS = {"(": ")", "[": "]", "{": "}"}


def prompts(count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        open_ones, text = [], ""
        length = draw.randint(1, 8)
        while len(text) < length or not open_ones:
            if open_ones and draw.random() < 0.4:
                text += PAIRS[open_ones.pop()]
            elif len(open_ones) < 4:
                open_ones.append(draw.choice(list(PAIRS)))
                text += open_ones[-1]
            else:
                text += PAIRS[open_ones.pop()]
        yield {"prompt": text, "answer": "".join(PAIRS[one] for one in reversed(open_ones))}


def reward(line):
    answer, completion = line["answer"], line["completion"]
    right = 0
    while right < min(len(answer), len(completion)) and answer[right] == completion[right]:
        right += 1
    stopped = line["finish_reason"] == "stop"
    return (right + (stopped and completion == answer)) / max(len(answer) + 1, len(completion) + stopped)


match sys.argv[1:]:
    case ["text"]:
        draw = random.Random(1)
        for _ in range(4000):
            print("".join(draw.choice("()[]{}") for _ in range(draw.randint(1, 12))) + ".")
    case ["prompts"]:
        for one in prompts(1000, 2):
            print(json.dumps(one))
    case ["reward"]:
        for line in sys.stdin:
            print(reward(json.loads(line)))
    case _:
        sys.exit(__doc__)
