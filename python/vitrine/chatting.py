"""Conversations as a model's chat template writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, overload

from .errors import InputError, UsageError
from .opened import OpenedModel

Message = Mapping[str, Any]  # "role", "content" and whatever else the template reads
Conversation = Sequence[Message]


@overload
def apply_chat_template(
    model: OpenedModel, conversation: Conversation, tools: Sequence[Mapping[str, Any]] | None = None, *, chat_template: str | None = None,
    add_generation_prompt: bool = False, continue_final_message: bool = False, tokenize: Literal[True] = True, **variables: Any,
) -> list[int]: ...


@overload
def apply_chat_template(
    model: OpenedModel, conversation: Conversation, tools: Sequence[Mapping[str, Any]] | None = None, *, chat_template: str | None = None,
    add_generation_prompt: bool = False, continue_final_message: bool = False, tokenize: Literal[False], **variables: Any,
) -> str: ...


@overload
def apply_chat_template(
    model: OpenedModel, conversation: Sequence[Conversation], tools: Sequence[Mapping[str, Any]] | None = None, *,
    chat_template: str | None = None, add_generation_prompt: bool = False, continue_final_message: bool = False, tokenize: bool = True,
    **variables: Any,
) -> list[Any]: ...


def apply_chat_template(
    model: OpenedModel, conversation: Conversation | Sequence[Conversation], tools: Sequence[Mapping[str, Any]] | None = None, *,
    chat_template: str | None = None, add_generation_prompt: bool = False, continue_final_message: bool = False, tokenize: bool = True,
    **variables: Any,
) -> Any:
    """The ids of a conversation by the model's chat template, as `transformers` has it: generate() takes them. For a list of
    conversations a list.

        model.apply_chat_template([{"role": "user", "content": "Hello"}], add_generation_prompt=True)

    The ids begin with BOS once where the tokenizer adds one, whether or not the template writes it. Control tokens that a message
    spells out are text. chat_template: Jinja in the place of the model's own. add_generation_prompt: up
    to where the assistant's next message begins. continue_final_message: the last message, which is the assistant's, stays open.
    tokenize: False gives the text. variables: what else the template reads, such as enable_thinking=False.

    Raises InputError for a model without a template, for a mistake in the template, with its line, and for what it refuses.
    """
    if isinstance(conversation, str | Mapping) or not isinstance(conversation, Sequence):
        raise InputError(f"a conversation is a list of messages, each a dict with role and content; got {conversation!r}")
    if conversation and not isinstance(conversation[0], Mapping):
        several = cast(Sequence[Conversation], conversation)
        how: dict[str, Any] = {"chat_template": chat_template, "add_generation_prompt": add_generation_prompt,
                               "continue_final_message": continue_final_message, "tokenize": tokenize}
        return [apply_chat_template(model, one, tools, **how, **variables) for one in several]
    messages: list[Any] = list(conversation)
    begun = ""
    if continue_final_message:
        last = messages.pop() if messages else {}
        if add_generation_prompt or last.get("role") != "assistant" or not isinstance(last.get("content"), str):
            raise UsageError("continue_final_message takes a conversation that ends with the assistant's message, a text, and no "
                             "add_generation_prompt")
        begun = last["content"]
    text, ids = model._session.chat(_json(messages), _json(None if tools is None else list(tools)), _json(variables),
                                    add_generation_prompt or continue_final_message, begun, chat_template)
    return ids if tokenize else text


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=dict)
    except (TypeError, ValueError) as error:
        raise InputError(f"the conversation holds what JSON has no word for: {error}") from error
