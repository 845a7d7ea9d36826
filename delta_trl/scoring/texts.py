"""The text of single tokens, such that the texts of a completion's tokens join to the completion."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from transformers import PreTrainedTokenizerBase

from ..credit import Turn


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # decoded from bytes that are not a whole character


class TokenTexts:
    """
    Decodes tokens one by one, special tokens included.

    A token's text is what it adds to the text before it: " the" for a tokenizer whose words begin with their space.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        self.of_type, self.is_special = cache(self._of_type), cache(self._is_special)  # at most one vocabulary

    def decode(self, ids: list[int], **options) -> str:
        return self._tokenizer.decode(ids, clean_up_tokenization_spaces=False, **options)

    def _of_type(self, token_id: int) -> str:
        """The text of a token within a text; U+FFFD where the token is only a part of a character."""
        # decoders treat the first token of a text differently, hence the second of two
        return self.decode([token_id, token_id])[len(self.decode([token_id])) :]

    def of_sequence(self, ids: list[int]) -> list[str]:
        """
        The text of each token of a sequence; joined, they are the decoded sequence. If several tokens form one
        character, the last one has it and the others are empty.
        """
        if not ids:
            return []
        texts = [self.decode(ids[:1]), *map(self.of_type, ids[1:])]
        return texts if "".join(texts) == self.decode(ids) else self._one_after_the_other(ids)

    def _one_after_the_other(self, ids: list[int]) -> list[str]:
        texts = []
        start = read = 0  # the next text is decoded from `start`, and is what follows the text up to `read`
        for end in range(1, len(ids) + 1):
            before, after = self.decode(ids[start:read]), self.decode(ids[start:end])
            if after.endswith(REPLACEMENT) and end < len(ids):  # perhaps the beginning of a character
                texts.append("")
            else:
                texts.append(after[len(before) :])
                start, read = read, end
        return texts

    def _is_special(self, token_id: int) -> bool:
        """Whether `decode` with `skip_special_tokens` leaves a token out."""
        return self.decode([token_id]) != "" and self.decode([token_id], skip_special_tokens=True) == ""

    def of_turns(
        self, ids: list[int], of_policy: Sequence[int], tools: Sequence[tuple[str, ...]] = ()
    ) -> tuple[list[str | None], list[Turn]]:
        """
        The text of each token of a completion, `None` for special ones and for a tool's, and the policy's turns.

        Args:
            ids (`list[int]`): The completion.
            of_policy (`Sequence[int]`): 0 where a token is a tool's, not 0 where it is the policy's.
            tools (`Sequence[tuple[str, ...]]`, *optional*): The tools that each turn calls.
        """
        texts: list[str | None] = [None] * len(ids)
        turns: list[Turn] = []
        changes = [i for i in range(1, len(ids)) if of_policy[i] != of_policy[i - 1]]
        characters = 0
        for first, stop in pairwise([0, *changes, len(ids)]):
            if first == stop or not of_policy[first]:
                continue
            plain = [i for i in range(first, stop) if not self.is_special(ids[i])]
            for i, text in zip(plain, self.of_sequence([ids[i] for i in plain]), strict=True):
                texts[i] = text
            turn_text = "".join(texts[i] or "" for i in plain)
            called = tools[len(turns)] if len(turns) < len(tools) else ()
            turns.append(Turn(turn_text, characters, characters + len(turn_text), first, stop - 1, called))
            characters += len(turn_text)
        return texts, turns
