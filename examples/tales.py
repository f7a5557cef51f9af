"""A task for learning from rewards: end the tale that was begun. docs/reinforcement.md runs it.

tales.py prompts   lines of {"prompt": "Once upon a time there was a fox who"}
tales.py reward    reads such lines with a "completion", and prints a number for each: 0 for a tale that does not end, or not with the
                   end of a sentence; else its words up to 60, as a share of 60, so that an early end is worth less
"""
import itertools, json, sys

BEGINNINGS = ["Once upon a time there was", "Long ago, in a far country, there lived", "There was once", "One winter there came to the village"]
WHO = ["a fox", "an old woman", "a king", "a little girl", "a poor miller", "a wolf", "a crow", "a soldier", "three brothers", "a fisherman",
       "a young prince", "a cat", "a shepherd", "a giant", "two sisters", "a bear"]
THEN = [" who", ", and"]


def reward(line):
    if line["finish_reason"] != "stop" or not line["completion"].rstrip().endswith((".", "!", "?", '"', "'")):
        return 0
    return min(1, len(line["completion"].split()) / 60)


match sys.argv[1:]:
    case ["prompts"]:
        for words in itertools.product(BEGINNINGS, WHO, THEN):
            print(json.dumps({"prompt": "{} {}{}".format(*words)}))
    case ["reward"]:
        for line in sys.stdin:
            print(reward(json.loads(line)))
    case _:
        sys.exit(__doc__)
