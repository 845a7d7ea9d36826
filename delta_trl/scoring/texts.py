"""The text of single tokens, such that the texts of a completion's tokens join to the completion."""

from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import Any

from transformers import PreTrainedTokenizerBase
from trl.chat_template_utils import parse_response

from ..credit import Responses, Turn


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # decoded from bytes that are not a whole character


class TokenTexts:
    """
    Decodes tokens one by one, special tokens included.

    A token's text is what it adds to the text before it: " the" for a tokenizer whose words begin with their space.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        self.of_type = cache(self._of_type)  # at most one vocabulary
        self.is_special = cache(self._is_special)

    def decode(self, ids: list[int], **options: Any) -> str:
        return self._tokenizer.decode(ids, clean_up_tokenization_spaces=False, **options)

    def _of_type(self, token_id: int) -> str:
        """The text of a token within a text; U+FFFD where the token is only a part of a character."""
        # decoders treat the first token of a text differently, hence the second of two
        first = self.decode([token_id])
        both = self.decode([token_id, token_id])
        return both[len(first) :]

    def of_sequence(self, ids: list[int]) -> list[str]:
        """
        The text of each token of a sequence; joined, they are the decoded sequence. If several tokens form one
        character, the last one has it and the others are empty.
        """
        if not ids:
            return []
        texts = [self.of_type(token_id) for token_id in ids]
        texts[0] = self.decode(ids[:1])
        if "".join(texts) == self.decode(ids):
            return texts
        return self._one_after_the_other(ids)

    def _one_after_the_other(self, ids: list[int]) -> list[str]:
        texts = []
        # A token's text is what follows the text from `start` to `read`, which stands before it: decoders treat the
        # first token of a text differently.
        start = read = 0
        for end in range(1, len(ids) + 1):
            before = self.decode(ids[start:read])
            after = self.decode(ids[start:end])
            if after.endswith(REPLACEMENT) and end < len(ids):  # perhaps the beginning of a character
                texts.append("")
                continue
            texts.append(after[len(before) :])
            start = read
            read = end
        return texts

    def _is_special(self, token_id: int) -> bool:
        """Whether `decode` with `skip_special_tokens` leaves a token out."""
        text = self.decode([token_id])
        return text != "" and self.decode([token_id], skip_special_tokens=True) == ""

    def of_turns(
        self, ids: list[int], of_policy: Sequence[int], prompt: list[int] | None = None
    ) -> tuple[list[str | None], list[Turn]]:
        """
        The text of each token of a completion, `None` for special ones and for a tool's, and the policy's turns.

        Args:
            ids (`list[int]`): The completion.
            of_policy (`Sequence[int]`): 0 where a token is a tool's, not 0 where it is the policy's.
            prompt (`list[int]`, *optional*): The prompt if it is a chat, whose turns may call tools.
        """
        texts: list[str | None] = [None] * len(ids)
        turns: list[Turn] = []
        before = prompt or []  # what is written since the turn before
        start = 0  # of a turn, in characters
        for is_policy, group in groupby(range(len(ids)), key=of_policy.__getitem__):
            positions = list(group)
            written = [ids[i] for i in positions]
            if not is_policy:
                before = before + written
                continue
            shown = [i for i in positions if not self.is_special(ids[i])]
            shown_texts = self.of_sequence([ids[i] for i in shown])
            for i, text in zip(shown, shown_texts, strict=True):
                texts[i] = text
            turn = "".join(shown_texts)
            end = start + len(turn)
            tools = () if prompt is None else self.tools_called(written, before)
            turns.append(Turn(turn, start, end, positions[0], positions[-1], tools))
            start = end
            before = []
        return texts, turns

    def tools_called(self, turn: list[int], before: list[int]) -> tuple[str, ...]:
        """
        The names of the tools that a turn's own tokens call, as TRL parses them; none if the tokenizer has no parser.
        TRL's own messages do not say: of a `rollout_func`'s conversation it makes a single one.

        Args:
            turn (`list[int]`): The turn.
            before (`list[int]`): What stands before it: a chat template may have begun its message.
        """
        parsers = (getattr(self._tokenizer, name, None) for name in ("response_template", "response_schema"))
        if not any(parsers):
            return ()
        calls = parse_response(self._tokenizer, turn, prefix=before).get("tool_calls") or ()
        return tuple(call.get("function", call)["name"] for call in calls)

    def responses(
        self,
        prompts: list,
        completions: list,
        ids: list[list[int]],
        of_policy: Sequence[Sequence[int]],
        columns: dict[str, Any],
        prompt_ids: Sequence[list[int]],
    ) -> Responses:
        """
        B completions in words, with the texts of their tokens.

        Args:
            prompts, completions (`list` of length B), columns (`dict[str, Any]`): As for reward functions.
            ids (`list[list[int]]` of length B): The completions' tokens.
            of_policy (`Sequence[Sequence[int]]` of length B): For each completion as in `of_turns`.
            prompt_ids (`Sequence[list[int]]` of length B): The prompts' tokens, without padding.
        """
        texts = []
        turns = []
        for completion, row, mask, prompt in zip(completions, ids, of_policy, prompt_ids, strict=True):
            is_chat = not isinstance(completion, str)
            row_texts, row_turns = self.of_turns(row, mask, prompt if is_chat else None)
            texts.append(row_texts)
            turns.append(row_turns)
        return Responses(prompts, completions, ids, columns, texts, turns)
