"""Rules of token credit by exact labels, which plans name by dotted path (`scripts.studies.rules.Oracle`)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch

from delta_trl.credit import ChangedCredit, Credit, RandomCredit, TokenCredit, Tokens
from delta_trl.credit.coefficients import split_sides

from .tasks import Task, first_mistake, right_tokens


class Labels:
    """The first mistake of every completion of the last rollout batch: the study's reward writes, [`Oracle`] reads."""

    def __init__(self):
        self.ids: list[list[int]] = []
        self.mistakes: list[int | None] = []
        self.offsets: list[int | None] = []  # the characters before them

    def of_rows(self, tokens: Tokens) -> torch.Tensor:  # (B,)
        """Index of each row's first wrong token, -1 without one."""
        recorded = torch.tensor([i for row in self.ids for i in row], device=tokens.ids.device)
        if len(self.ids) != len(tokens.mask) or not torch.equal(recorded, tokens.ids):
            raise RuntimeError("The labels are not those of this rollout batch, row by row.")
        return torch.tensor([-1 if m is None else m for m in self.mistakes], device=tokens.ids.device)


LABELS = Labels()


def labelled(reward: Callable, task: Task, tokenizer) -> Callable:
    """A reward that also records the first mistakes. TRL calls it with the rollout batch, in its order."""
    right: dict[str, list[tuple[str, ...]]] = {}

    def labelled_reward(completions, prompts, completion_ids, **columns):
        for prompt in prompts:
            if prompt not in right:
                right[prompt] = right_tokens(task, {"prompt": prompt})
        LABELS.ids = completion_ids
        LABELS.mistakes = [
            first_mistake(right[prompt], tokenizer.convert_ids_to_tokens(ids))
            for prompt, ids in zip(prompts, completion_ids, strict=True)
        ]
        LABELS.offsets = [
            None if mistake is None else len(tokenizer.decode(ids[:mistake], skip_special_tokens=True))
            for ids, mistake in zip(completion_ids, LABELS.mistakes, strict=True)
        ]
        return reward(completions=completions, prompts=prompts, **columns)

    labelled_reward.__name__ = reward.__name__
    return labelled_reward


def first_mistakes(completion_ids, **columns) -> list[list[float]]:
    """A source of weights for `given`: the first wrong token counts ten times."""
    return [
        [10.0 if i == mistake else 1.0 for i in range(len(ids))]
        for ids, mistake in zip(completion_ids, LABELS.mistakes, strict=True)
    ]


def right_lines(completions, **columns) -> list[list[tuple[int, int, float]]]:
    """A source of step rewards for `given`: 1 for each line before the first mistake, 0 for the others."""
    found = []
    for text, mistake in zip(completions, LABELS.offsets, strict=True):
        ends = list(accumulate(map(len, text.splitlines(keepends=True))))
        found.append([(a, b, float(mistake is None or b <= mistake)) for a, b in pairwise([0, *ends])])
    return found


def with_mean_one(weights: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:  # (N,), (2, N) -> (N,)
    """Weights divided by their mean over the tokens with A ≠ 0, in one process, and 1 for the others."""
    trains = sides.any(dim=0)
    total = weights[trains].sum()
    return torch.where(trains, weights * trains.sum() / total, 1.0) if total > 0 else torch.ones_like(weights)


@dataclass
class Oracle(TokenCredit):
    """
    The tokens that decide, by exact labels: in losers the first wrong token; in winners, if these are masked as well,
    those at which losing siblings first went wrong (a right text has the same places in all completions of a prompt).

    Args:
        winners (`bool`, *optional*, defaults to `False`): Mask winners, too. Otherwise all their tokens weigh 1.
        rest (`float`, *optional*, defaults to `0.0`): Weight of the other tokens of those that are masked.
    """

    winners: bool = False
    rest: float = 0.0

    def of_rollout(self, tokens: Tokens) -> Credit:
        _, sides = split_sides(tokens.advantages)
        mistakes = LABELS.of_rows(tokens)  # (B,)
        position = tokens.mask.cumsum(dim=1) - 1  # (B, T), of each token in its completion
        n_groups = int(tokens.group.max()) + 1
        places = torch.zeros(n_groups, tokens.mask.size(1), dtype=torch.bool, device=mistakes.device)
        wrong = tokens.flat(position == mistakes[:, None])  # (N,)
        lost = wrong & sides[1]
        places[tokens.group[lost], tokens.flat(position)[lost]] = True
        decides = torch.where(sides[0], places[tokens.group, tokens.flat(position)], wrong)
        masked = sides.any(dim=0) if self.winners else sides[1]
        weights = torch.where(masked & ~decides, self.rest, 1.0)
        return Credit(with_mean_one(weights, sides))


@dataclass
class AtSideWeight(ChangedCredit):
    """
    Another rule's weights, scaled so that the means of winners and losers have the ratio 1 to `losers`, and the mean
    over both is 1: token-level information at a given balance. Its side-matched control is
    `SideWeights(losers=losers)`.
    """

    rule: TokenCredit = field(default_factory=RandomCredit)
    losers: float = 0.2

    def change(self, weights: torch.Tensor, tokens: Tokens) -> torch.Tensor:
        _, sides = split_sides(tokens.advantages)
        mean = (sides * weights).sum(dim=1) / sides.sum(dim=1).clamp(min=1)
        scale = mean.new_tensor([1.0, self.losers]) / mean.clamp(min=1e-6)
        scaled = torch.where(sides[0], weights * scale[0], torch.where(sides[1], weights * scale[1], 1.0))
        return with_mean_one(scaled, sides)
