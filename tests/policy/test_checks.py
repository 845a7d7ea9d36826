import pytest
from transformers import GPT2Config, ProcessorMixin, Qwen3Config

from delta_trl.policy.checks import check_ids, check_prompts, context_length

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


@pytest.mark.parametrize("beyond", [0, 1])
def test_without_a_completion_to_come_tokens_alone_are_counted(beyond):
    tokenizer = tiny.tokenizer()
    ids = [5] * (8 + beyond)
    expected = [f"it has {len(ids)} tokens: the model has 8 positions."] * beyond
    size = {"vocab_size": 6, "max_position_embeddings": 8}
    assert check_ids(ids, tokenizer, Qwen3Config(**size), "it") == expected
    for wrong, problem in (([], "it has no token"), ([6], "beyond the vocabulary, 6")):
        with pytest.raises(ValueError, match=problem):
            check_ids(wrong, tokenizer, Qwen3Config(**size), "it")


@pytest.mark.parametrize(("unknown", "said"), [(1, False), (2, True)])
def test_words_that_the_tokenizer_does_not_know(unknown, said):
    """More than a tenth of them."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"unk_token": "?"})
    ids = [tokenizer.unk_token_id] * unknown + [5] * (10 - unknown)
    found = check_ids(ids, tokenizer, Qwen3Config(), "it")
    assert [f"it has {unknown} tokens of 10 that the tokenizer of" in text for text in found] == [True] * said


@pytest.mark.parametrize("row", [0, 1, 2])
def test_the_first_prompt_and_the_longest_are_read(row):
    prompts = ["1", "2", "3" * 4]
    prompts[row] = "4" * len(prompts[row])
    known = tiny.tokenizer()
    size = known.convert_tokens_to_ids("4")
    if row == 1:
        assert check_prompts(prompts, known, Qwen3Config(vocab_size=size), 4, "data") == []
    else:
        with pytest.raises(ValueError, match=f"data, row {row + 1}: the prompt has a token beyond the vocabulary"):
            check_prompts(prompts, known, Qwen3Config(vocab_size=size), 4, "data")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_position_embeddings": 1}, 1),
        ({"max_position_embeddings": 0}, None),
        (
            {
                "max_position_embeddings": 9,
                "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
            },
            None,
        ),
    ],
)
def test_positions_that_a_model_was_made_for(options, expected):
    assert context_length(Qwen3Config(**options)) == expected


class Processor(ProcessorMixin):
    """The processor of a multimodal checkpoint."""

    def __init__(self, tokenizer):
        super().__init__(tokenizer)


def test_a_processors_prompts_are_not_read():
    assert (
        check_prompts(["1" * 9], Processor(tiny.tokenizer()), GPT2Config(max_position_embeddings=4), 4, "data") == []
    )
