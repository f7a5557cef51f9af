"""Structured output against a running server: instructor in its modes, langchain-openai's methods, outlines' types and grammars, and
classes of pydantic as a JSON schema.

  pip install instructor langchain-openai outlines jsonschema lark
  vitrine serve --template bench/clients/chat_template.jinja --port 8080
  python bench/clients/structured_clients.py http://127.0.0.1:8080/v1

Modes that only ask the model for JSON, in words, need one that follows them; the schema goes along here, so that any model does.
"""
import datetime
import decimal
import enum
import json
import re
import sys
import typing
import uuid

import instructor
import jsonschema
import lark
import openai
import outlines
from langchain_openai import ChatOpenAI
from outlines import grammars, types
from pydantic import AnyUrl, BaseModel, Field

base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
key = sys.argv[2] if len(sys.argv) > 2 else "none"
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Who is it?"}]
counts = {}


def check(part, holds, what):
    if not holds:
        raise SystemExit(f"failed: {part}: {what}")
    counts[part] = counts.get(part, 0) + 1


class Person(BaseModel):
    """A person."""
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


SCHEMA = Person.model_json_schema()


def with_instructor(mode, seed):
    made = instructor.from_openai(client, mode=mode)
    common = dict(model=model, temperature=1, max_retries=0)
    with_schema = {mode.JSON: {"response_format": {"type": "json_object", "schema": SCHEMA}}, mode.MD_JSON: {"json_schema": SCHEMA},
                   mode.PARALLEL_TOOLS: {"tool_choice": "required"}}
    if mode == mode.RESPONSES_TOOLS:
        return made.responses.create(input=messages, max_output_tokens=256, response_model=Person, extra_body={"seed": seed}, **common)
    expected = typing.Iterable[Person] if mode == mode.PARALLEL_TOOLS else Person
    person = made.chat.completions.create(messages=messages, max_tokens=256, response_model=expected, seed=seed,
                                          extra_body=with_schema.get(mode, {}), **common)
    return list(person)[0] if mode == mode.PARALLEL_TOOLS else person


for name in ("TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA", "MD_JSON", "PARALLEL_TOOLS", "RESPONSES_TOOLS"):
    for seed in range(3):
        check("instructor", isinstance(with_instructor(instructor.Mode[name], seed), Person), name)

for method in ("function_calling", "json_schema", "json_mode"):
    for seed in range(3):
        more = {"extra_body": {"response_format": {"type": "json_object", "schema": SCHEMA}}} if method == "json_mode" else {}
        chat = ChatOpenAI(model=model, base_url=base, api_key=key, temperature=1, max_tokens=256, max_retries=0, seed=seed, **more)
        check("langchain", isinstance(chat.with_structured_output(Person, method=method).invoke("Who is it?"), Person), method)


class Color(enum.Enum):
    red = "red"
    green = "green"


served = outlines.from_vllm(client, model)


def written(output, seed=0, most=300):
    return served("A text:", output, seed=seed, temperature=1, max_tokens=most)


REGEXES = ("integer", "boolean", "number", "date", "time", "datetime", "digit", "char", "newline", "whitespace", "hex_str", "uuid4",
           "ipv4", "semver", "mac_address", "ipv6", "hex_color", "slug", "credit_card", "iban", "bic", "e164", "latitude", "longitude")
for name in REGEXES:
    kind = getattr(types, name, None)
    if kind is None:  # of another version
        continue
    text = written(kind)
    check("outlines", re.fullmatch(kind.pattern, text), f"{name}: {text!r}")
check("outlines", written(types.email, most=20) != "", "email")  # nothing limits its length, and a small model writes no @
check("outlines", written(typing.Literal["king", "queen"]) in ("king", "queen"), "Literal")
check("outlines", written(Color) in ("red", "green"), "Enum")
check("outlines", isinstance(Person.model_validate_json(written(Person)), Person), "a class")
check("outlines", int(written(int)) is not None, "int")
check("outlines", written(bool) in ("True", "False"), "bool")
check("outlines", isinstance(json.loads(written(types.JsonSchema(SCHEMA, whitespace_pattern=" ?"))), dict), "JsonSchema")
try:
    written(types.isbn)
    raise SystemExit("outlines: isbn: look-ahead inside of a regular expression was not refused")
except outlines.exceptions.BadRequestError as error:
    check("outlines", "structured_outputs.regex" in str(error), str(error))
# Texts of grammars need not end. Those that end are parsed by Lark, except strings with line breaks, which llguidance's ESCAPED_STRING has.
for name, grammar in (("arithmetic", grammars.arithmetic), ("json", grammars.json)):
    parser = lark.Lark(grammar)
    whole = 0
    for seed in range(10):
        answer = client.chat.completions.create(model=model, messages=messages, temperature=1, max_tokens=200, seed=seed,
                                                extra_body={"structured_outputs": {"grammar": grammar}}).choices[0]
        if answer.finish_reason == "stop" and not ('"' in answer.message.content and "\n" in answer.message.content):
            parser.parse(answer.message.content)
            whole += 1
    check("outlines", whole > 0, f"{name}: none of 10 texts ended")
    written(types.CFG(grammar), most=20)
    check("outlines", True, name)


class Cat(BaseModel):
    kind: typing.Literal["cat"] = "cat"
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: typing.Literal["dog"] = "dog"
    good: bool


class Everything(BaseModel):
    id: uuid.UUID
    price: decimal.Decimal = Field(max_digits=5, decimal_places=2)
    when: datetime.datetime
    color: Color
    colors: set[Color]
    pet: Cat | Dog = Field(discriminator="kind")
    pair: tuple[int, bool]
    counts: dict[typing.Literal["a", "b"], int] | None = None
    weight: float = Field(ge=0, lt=10)


def is_whole(name, schema, most, seed):
    answer = client.completions.create(model=model, prompt="Once upon a time there was ", temperature=1, max_tokens=most, seed=seed,
                                       extra_body={"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
    if answer.choices[0].finish_reason != "stop":
        return False
    jsonschema.validate(json.loads(answer.choices[0].text), schema)
    return True


for name, schema, most in (("a person", SCHEMA, 128), ("many types", Everything.model_json_schema(), 512)):
    whole = sum(is_whole(name, schema, most, seed) for seed in range(30))
    print(f"{name}: {whole} of 30 answers are complete and valid within {most} tokens")
    check("pydantic", whole == 30 or name != "a person", f"{name}: {whole} of 30")
print(", ".join(f"{part}: {n} checks hold" for part, n in counts.items()))
