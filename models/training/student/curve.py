"""The validation losses of two runs on the same tokens, as JSON on standard output.

    python3 curve.py TEXT/metrics.jsonl TEACHER/metrics.jsonl
"""
import json
import sys


def losses(path):
    lines = [json.loads(line) for line in open(path)]
    return {line["tokens"]: line["val_loss"] for line in lines if line.get("val_loss") is not None}


text, teacher = losses(sys.argv[1]), losses(sys.argv[2])
tokens = sorted(set(text) & set(teacher))
print(json.dumps({"studentMillions": 1.8, "teacherMillions": 9.4, "tokens": tokens,
                  "text": [round(text[n], 4) for n in tokens], "teacher": [round(teacher[n], 4) for n in tokens],
                  "recipe": "models/training/student/curve.sh"}))
