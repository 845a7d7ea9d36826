"""The text of single tokens, such that the texts of a completion's tokens join to the completion."""

from transformers import PreTrainedTokenizerBase


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # decoded from bytes that are not a whole character


class TokenTexts:
    """
    Decodes tokens one by one, special tokens included.

    A token's text is what it adds to the text before it: " the" for a tokenizer whose words begin with their space.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}  # at most as many as the vocabulary has

    def decode(self, ids: list[int], **options) -> str:
        return self._tokenizer.decode(ids, clean_up_tokenization_spaces=False, **options)

    def of_type(self, token_id: int) -> str:
        """The text of a token within a text; U+FFFD where the token is only a part of a character."""
        if token_id not in self._texts:
            # decoders treat the first token of a text differently, hence the second of two
            self._texts[token_id] = self.decode([token_id, token_id])[len(self.decode([token_id])) :]
        return self._texts[token_id]

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

    def of_response(self, ids: list[int]) -> list[str | None]:
        """As above, of the tokens that are not special; `None` for those that are."""
        special = {*self._tokenizer.all_special_ids}
        texts = iter(self.of_sequence([token for token in ids if token not in special]))
        return [None if token in special else next(texts) for token in ids]
