"""Which tokens begin and end a completion."""

from types import SimpleNamespace

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import GenerationConfig

from delta_trl.scoring.prompts import end_tokens, prompt_ids, stop_tokens

from ..corpus import tiny


@pytest.mark.parametrize(
    ("declared", "ends"),
    [
        (None, [0]),
        (0, [0]),
        (7, [0, 7]),
        ([7, 0, 8], [0, 7, 8]),
    ],
)
def test_tokens_that_end_a_completion_are_the_tokenizers_and_the_models(declared, ends):
    """Each once; also number 0."""
    tokenizer = tiny.tokenizer()
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(0)
    assert end_tokens(tokenizer, GenerationConfig(eos_token_id=declared)) == ends


@pytest.mark.parametrize(
    ("declared", "ends"),
    [
        (None, [1, 3]),
        (3, [1, 3]),
        ([7, 1], [1, 7, 3]),
    ],
)
def test_chats_end_also_where_the_template_ends_a_message(declared, ends):
    """Last of all: generation asks for it alone, where the model declares the others."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [tokenizer.convert_ids_to_tokens(3)]})
    turn_end, of_another = tokenizer.convert_ids_to_tokens([3, 4])
    tokenizer.chat_template = f"{of_another}{{% for m in messages %}}{{{{ m.content }}}}{turn_end}{{% endfor %}}"
    beginning = (tokenizer.eos_token, tokenizer.eos_token_id)  # which many tokenizers put before a text
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{beginning[0]} $A", special_tokens=[beginning]
    )
    config = GenerationConfig(eos_token_id=declared)
    assert end_tokens(tokenizer, config, chats=True) == ends
    assert end_tokens(tokenizer, None, chats=True) == [1, 3]
    assert end_tokens(tokenizer, None) == [1]
    always = tokenizer.chat_template
    tokenizer.chat_template = always.replace(turn_end, f"{{% if closes %}}{turn_end}{{% endif %}}")
    assert end_tokens(tokenizer, None, True, {"closes": True}) == [1, 3]
    assert end_tokens(tokenizer, None, True) == [1]
    tokenizer.chat_template = always + of_another  # what is no special token may stand in any text
    assert end_tokens(tokenizer, config, chats=True) == ends
    tokenizer.chat_template = tokenizer.chat_template.replace(turn_end, of_another)
    assert end_tokens(tokenizer, config, chats=True) == end_tokens(tokenizer, config)


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        (None, []),
        ({}, []),
        ({"min_p": 0.1}, []),
        ({"eos_token_id": 0}, [0]),
        ({"eos_token_id": [5, 0]}, [5, 0]),
        ({"eos_token_id": None, "stop_token_ids": [7]}, [7]),
        ({"eos_token_id": 5, "stop_token_ids": [7, 0]}, [5, 7, 0]),
    ],
    ids=str,
)
def test_tokens_that_the_options_stop_at(options, stops):
    assert stop_tokens(SimpleNamespace(generation_kwargs=options)) == stops


def test_prompts_of_chats_ask_for_a_reply_in_the_templates_way():
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = "{{ messages[0].content }}{% if add_generation_prompt %}={{ style }}{% endif %}"
    chats = [[{"role": "user", "content": "1"}], [{"role": "user", "content": "22"}]]
    assert prompt_ids(tokenizer, chats, {"style": "a"}) == prompt_ids(tokenizer, ["1=a", "22=a"])
    assert prompt_ids(tokenizer, chats) == prompt_ids(tokenizer, ["1=", "22="])
