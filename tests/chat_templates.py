"""Chat templates of the shapes that models have, each with its own account of what it renders.

`TEMPLATES[name].pieces(messages, reply)` gives the text piece by piece, with the number of the
message that a piece is the content of, or None for the template's. It is written by hand, without
jinja, so that spans found by comparing renders can be checked against it.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

from cutaway.models.chat import with_chat

Pieces = list[tuple[str, int | None]]


@dataclass(frozen=True)
class Shape:
    """A template, what it renders, and whether it reads a system message."""

    jinja: str
    pieces: Callable[[list, bool], Pieces]
    system: bool = True


def chat_model(lm, template: str | None, *, context: int | None = None, **options):
    """A tiny model whose tokenizer has this template, reading conversations in it."""
    tokenizer = deepcopy(lm.tokenizer)
    tokenizer.chat_template = template
    return with_chat(replace(lm, tokenizer=tokenizer, context=context or lm.context), **options)


def _chatml(messages: list, reply: bool, default: str = "") -> Pieces:
    out: Pieces = [(default, None)] if default and messages[0].role != "system" else []
    for i, (role, content) in enumerate(messages):
        out += [(f"<|im_start|>{role}\n", None), (content, i), ("<|im_end|>\n", None)]
    return out + ([("<|im_start|>assistant\n", None)] if reply else [])


def _llama3(messages: list, reply: bool) -> Pieces:
    out: Pieces = [("<s>", None)]
    for i, (role, content) in enumerate(messages):
        header = f"<|start_header_id|>{role}<|end_header_id|>\n\n"
        out += [(header, None), (content.strip(), i), ("<|eot_id|>", None)]
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    return out + ([(header, None)] if reply else [])


def _llama2(messages: list, reply: bool) -> Pieces:
    out: Pieces = []
    system = messages[0].content if messages[0].role == "system" else None
    for i, (role, content) in enumerate(messages):
        if role == "user":
            out.append(("<s>[INST] ", None))
            if system is not None and i == 1:
                out += [("<<SYS>>\n", None), (system, 0), ("\n<</SYS>>\n\n", None)]
                out += [(content.rstrip(), i)]
            else:
                out += [(content.strip(), i)]
            out.append((" [/INST]", None))
        elif role == "assistant":
            out += [(" ", None), (content.strip(), i), (" </s>", None)]
    return out


def _gemma(messages: list, reply: bool) -> Pieces:
    out: Pieces = [("<s>", None)]
    for i, (role, content) in enumerate(messages):
        turn = "model" if role == "assistant" else role
        out += [(f"<start_of_turn>{turn}\n", None), (content.strip(), i), ("<end_of_turn>\n", None)]
    return out + ([("<start_of_turn>model\n", None)] if reply else [])


def _zephyr(messages: list, reply: bool) -> Pieces:
    out: Pieces = []
    for i, (role, content) in enumerate(messages):
        out += [(f"<|{role}|>\n", None), (content, i), ("</s>\n", None)]
    return out + ([("<|assistant|>", None)] if reply else [])


def _dated(messages: list, reply: bool) -> Pieces:
    return [("Today is 26 Jul 2024.\n", None), *_chatml(messages, reply)]


CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DEFAULT_SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant.<|im_end|>\n"
SMOLLM2 = CHATML.replace(
    "{% for message in messages %}",
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    f"'{DEFAULT_SYSTEM}' }}}}{{% endif %}}",
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] "
    "+ '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}"
    "{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
ZEPHYR = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '<|user|>\n' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}"
    "{{ '<|system|>\n' + message['content'] + eos_token }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ '<|assistant|>\n' + message['content'] + eos_token }}{% endif %}{{ '\n' }}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}{% endfor %}"
)
DATED = "{{ 'Today is ' + strftime_now('%d %b %Y') + '.\n' }}" + CHATML

TEMPLATES = {
    "chatml": Shape(CHATML, _chatml),
    "smollm2": Shape(SMOLLM2, lambda m, r: _chatml(m, r, DEFAULT_SYSTEM)),
    "llama3": Shape(LLAMA3, _llama3),
    "llama2": Shape(LLAMA2, _llama2),
    "gemma": Shape(GEMMA, _gemma, system=False),
    "zephyr": Shape(ZEPHYR, _zephyr),
    "dated": Shape(DATED, _dated),
}


def save_chat_model(folder, template: str = SMOLLM2, family: str = "llama"):
    """A tiny checkpoint whose tokenizer has a chat template, with enough context for it."""
    import json

    from tests.tiny import tiny

    tiny(family, folder, max_position_embeddings=512)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"model_max_length": 512}
    path.write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(template)
    return folder


def labelled_chats(n: int = 40) -> list[dict]:
    """Conversations whose label can be read off the user's last word."""
    ends = ("good.", "bad.")
    return [
        {
            "messages": [
                {"role": "user", "content": f"Number {i} was {ends[i % 2]}"},
                {"role": "assistant", "content": "Well, I see."},
            ],
            "label": ends[i % 2][:-1],
        }
        for i in range(n)
    ]
