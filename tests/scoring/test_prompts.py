"""Which tokens end a completion."""

import pytest
from transformers import GenerationConfig

from delta_trl.scoring.prompts import end_tokens

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
