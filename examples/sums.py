"""A task for learning from rewards: add two numbers of two digits. docs/reinforcement.md runs it.

Sums are written with their units first, 27+58=58. for 85, since that is the order in which a sum is carried.
sums.py text      lines of such sums, of which one in three is right, and the others have digits at random behind the =: what the
                  starting model learns from
sums.py prompts   lines of {"prompt": "27+58=", "answer": "58"}
sums.py reward    reads such lines with a "completion", and prints a number for each: the share of digits that are right, where the
                  period at the end counts as a digit
"""
import json, random, sys


def reward(line):
    answer, completion = line["answer"] + ".", line["completion"] + "." * (line["finish_reason"] == "stop")
    return sum(a == b for a, b in zip(answer, completion)) / max(len(answer), len(completion))


match sys.argv[1:]:
    case ["text"]:
        draw = random.Random(1)
        for _ in range(20000):
            a, b = draw.randint(10, 99), draw.randint(10, 99)
            answer = str(a + b)[::-1] if draw.random() < 1 / 3 else "".join(draw.choices("0123456789", k=draw.choice([2, 3])))
            print(f"{a}+{b}={answer}.")
    case ["prompts"]:
        draw = random.Random(2)
        for _ in range(4000):
            a, b = draw.randint(10, 99), draw.randint(10, 99)
            print(json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)[::-1]}))
    case ["reward"]:
        for line in sys.stdin:
            print(reward(json.loads(line)))
    case _:
        sys.exit(__doc__)
