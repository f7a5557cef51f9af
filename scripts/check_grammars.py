#!/usr/bin/env python3
"""Random JSON schemas, and texts written under each: every complete text is JSON and valid by PyPI's jsonschema.

usage: check_grammars.py BUILD [--schemas N] [--texts N] [--seed N] [--vocabularies gpt2,gemma,tales9m]
needs: pip install jsonschema rfc3339-validator; BUILD/bench/bench_grammars, built with llguidance
"""
import argparse
import collections
import json
import random
import subprocess
import sys

import jsonschema

WORDS = ["name", "größe", "x", "日本", "a b", "naïve", "id", "q\"uote", "back\\slash", "😀"]
PATTERNS = ["^[a-z]{2,6}$", "^[A-Z][0-9]{3}(-[0-9]+)?$", "^(yes|no|может)$", "^\\d{1,3}\\.\\d$", "^[^\"<>]{0,8}$", "^ä+b*$"]
FORMATS = ["date", "time", "date-time", "ipv4", "uuid", "email"]


class Schemas:
    """A schema of a class; the classes take turns. Sizes are bounded so that texts end."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.classes = [self.scalar, self.text, self.number, self.enumeration, self.array, self.tuple, self.object, self.optional,
                        self.alternatives, self.reference, self.pattern, self.nested, self.both, self.map]

    def make(self, i):
        make = self.classes[i % len(self.classes)]
        return make.__name__, make(3)

    def any(self, depth):
        leaves = [self.scalar, self.text, self.number, self.enumeration, self.pattern]
        return self.random.choice(leaves if depth <= 0 else self.classes)(depth)

    def scalar(self, depth):
        return {"type": self.random.choice(["boolean", "null", "integer", ["boolean", "null"]])}

    def text(self, depth):
        low = self.random.randrange(4)
        return {"type": "string", "minLength": low, "maxLength": low + self.random.randrange(8)}

    def number(self, depth):
        low = self.random.choice([self.random.randrange(-2000, 2000), round(self.random.uniform(-5, 5), 2)])
        schema = {"type": "integer" if isinstance(low, int) and self.random.random() < 0.6 else "number",
                  self.random.choice(["minimum", "exclusiveMinimum"]): low}
        if self.random.random() < 0.8:
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = low + self.random.choice([2, 9, 150, 4000])
        if schema["type"] == "integer" and "exclusiveMaximum" not in schema and self.random.random() < 0.2:
            schema["multipleOf"] = self.random.choice([1, 2, 5])
        return schema

    def enumeration(self, depth):
        values = [1, -7, 0.5, None, True, "", "grün", "日本 \"q\"", "\\", [1, [2]], {"a": None}, "😀\n\t"]
        chosen = self.random.sample(values, self.random.randrange(1, 6))
        return {"const": chosen[0]} if self.random.random() < 0.2 else {"enum": chosen}

    def pattern(self, depth):
        if self.random.random() < 0.3:
            return {"type": "string", "format": self.random.choice(FORMATS)}
        return {"type": "string", "pattern": self.random.choice(PATTERNS)}

    def array(self, depth):
        low = self.random.randrange(3)
        return {"type": "array", "items": self.any(depth - 2), "minItems": low, "maxItems": low + self.random.randrange(3)}

    def tuple(self, depth):
        items = [self.any(depth - 2) for _ in range(self.random.randrange(1, 4))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": self.random.randrange(len(items) + 1)}

    def object(self, depth, required=True):
        names = self.random.sample(WORDS, self.random.randrange(1, 4))
        return {"type": "object", "properties": {n: self.any(depth - 2) for n in names},
                "required": names if required else self.random.sample(names, self.random.randrange(len(names))),
                "additionalProperties": False}

    def optional(self, depth):
        return self.object(depth, required=False)

    def nested(self, depth):
        return {"type": "object", "properties": {"a": self.object(depth), "b": self.array(depth)}, "required": ["a", "b"],
                "additionalProperties": False}

    def alternatives(self, depth):
        kind = "anyOf" if self.random.random() < 0.8 else "oneOf"
        if kind == "oneOf":  # alternatives that exclude each other
            return {"oneOf": [{"type": "string", "maxLength": 4}, {"type": "integer", "minimum": 3, "maximum": 77}, {"type": "null"}]}
        return {"anyOf": [self.any(depth - 2) for _ in range(self.random.randrange(1, 4))]}

    def reference(self, depth):
        return {"$defs": {"leaf": self.any(0), "tree": {
            "type": "object", "properties": {"leaf": {"$ref": "#/$defs/leaf"},
                                             "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
            "required": ["leaf", "next"], "additionalProperties": False}}, "$ref": "#/$defs/tree"}

    def both(self, depth):
        low = self.random.randrange(-50, 50)
        return {"allOf": [{"type": "integer", "minimum": low}, {"maximum": low + self.random.choice([0, 3, 400])}]}

    def map(self, depth):
        return {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 99}}


def only_root_refs(schema, top=True):
    """$ref to #/$defs means the root's: schemas with $defs inside others are lifted out of this check."""
    if isinstance(schema, dict):
        if "$defs" in schema and not top:
            return False
        return all(only_root_refs(v, False) for v in schema.values())
    return all(only_root_refs(v, False) for v in schema) if isinstance(schema, list) else True


def beyond_python(error):
    """Dates that RFC 3339 has and Python's datetime has not: the year 0 and leap seconds."""
    return error.validator == "format" and (str(error.instance).startswith("0000-") or ":60" in str(error.instance))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--schemas", type=int, default=140)
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocabularies", default="gpt2,gemma,tales9m")
    o = parser.parse_args()
    schemas, made = Schemas(o.seed), []
    while len(made) < o.schemas:
        kind, schema = schemas.make(len(made))
        if only_root_refs(schema):
            made.append((kind, schema))
    checkers = [jsonschema.Draft202012Validator(s, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER) for _, s in made]
    wrong = 0
    for vocabulary in o.vocabularies.split(","):
        run = subprocess.run([f"{o.build}/bench/bench_grammars", vocabulary, str(o.texts)], text=True, stdout=subprocess.PIPE,
                             input="".join(json.dumps(s, ensure_ascii=False) + "\n" for _, s in made), check=True)
        counts = collections.defaultdict(collections.Counter)
        for line in run.stdout.splitlines():
            result = json.loads(line)
            kind, schema = made[result["schema"]]
            if "text" not in result:
                counts[kind]["refused" if "refused" in result else "failed"] += 1
                print(f"{vocabulary}: {kind}: {result.get('refused') or result.get('failed')}: {json.dumps(schema)}", file=sys.stderr)
                continue
            if not result["complete"]:
                counts[kind]["cut short"] += 1
                continue
            try:
                errors = [e for e in checkers[result["schema"]].iter_errors(json.loads(result["text"])) if not beyond_python(e)]
                error = errors[0].message if errors else None
            except json.JSONDecodeError as e:
                error = str(e)
            counts[kind]["wrong" if error else "right"] += 1
            if error:
                wrong += 1
                print(f"{vocabulary}: {kind}: {error}\n  {json.dumps(schema)}\n  {result['text']!r}", file=sys.stderr)
        for kind, n in counts.items():
            print(f"{vocabulary:8} {kind:13}", ", ".join(f"{v} {k}" for k, v in sorted(n.items())))
        if sum(n["right"] for n in counts.values()) < len(made) * o.texts / 2:
            sys.exit(f"{vocabulary}: fewer than half of the texts came to an end")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
