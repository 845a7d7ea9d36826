import pytest
from transformers import GPT2Config, Qwen3Config

from delta_trl.policy.checks import check_prompts

from ..corpus import tiny


CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}=?{% endif %}"


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_chat_is_measured_as_it_is_generated_from(beyond):
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    chats = [[{"role": "user", "content": "1" * n}] for n in (3, 7, 5)]
    longest = len(tokenizer.apply_chat_template(chats[1], add_generation_prompt=True, return_dict=False))
    message = f"data, row 2: the prompt has {longest} tokens, with max_completion_length=4 more"
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": longest + 4 - beyond}
    warnings = check_prompts(chats, tokenizer, Qwen3Config(**size), 4, "data")
    assert [message in warning for warning in warnings] == [True] * beyond
    if beyond:  # others cannot go on
        with pytest.raises(ValueError, match=message):
            check_prompts(chats, tokenizer, GPT2Config(**size), 4, "data")
