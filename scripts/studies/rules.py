"""Rules of token credit that plans name by dotted path (`scripts.studies.rules.Oracle`), most by exact labels."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise

import torch

from delta_trl.credit import ChangedCredit, Credit, HiddenStates, RandomCredit, TokenCredit, Tokens
from delta_trl.credit.coefficients import split_sides

from .sampling import sample
from .tasks import Task, first_mistake, right_tokens


class Labels:
    """The first mistake of every completion of the last rollout batch: the study's reward writes, [`Oracle`] reads."""

    def __init__(self):
        self.ids = []  # of tokens
        self.mistakes = []  # `None` for a completion without one
        self.offsets = []  # the characters before them

    def of_rows(self, tokens: Tokens) -> torch.Tensor:  # (B,)
        """Index of each row's first wrong token, -1 without one."""
        device = tokens.ids.device
        recorded = torch.tensor(list(chain(*self.ids)), device=device)
        if len(self.ids) != len(tokens.mask) or not torch.equal(recorded, tokens.ids):
            raise RuntimeError("The labels are not those of this rollout batch, row by row.")
        mistakes = [-1 if mistake is None else mistake for mistake in self.mistakes]
        return torch.tensor(mistakes, device=device)


LABELS = Labels()


def labelled(reward: Callable, task: Task, tokenizer) -> Callable:
    """A reward that also records the first mistakes. TRL calls it with the rollout batch, in its order."""
    right = {}  # the tokens of a right completion, by prompt

    def labelled_reward(completions, prompts, completion_ids, **columns):
        for prompt in prompts:
            if prompt not in right:
                right[prompt] = right_tokens(task, {"prompt": prompt})
        LABELS.ids = completion_ids
        LABELS.mistakes = []
        LABELS.offsets = []
        for prompt, ids in zip(prompts, completion_ids, strict=True):
            mistake = first_mistake(right[prompt], tokenizer.convert_ids_to_tokens(ids))
            before = tokenizer.decode(ids[:mistake], skip_special_tokens=True)
            LABELS.mistakes.append(mistake)
            LABELS.offsets.append(None if mistake is None else len(before))
        return reward(completions=completions, prompts=prompts, **columns)

    labelled_reward.__name__ = reward.__name__
    return labelled_reward


def first_mistakes(completion_ids, **columns) -> list[list[float]]:
    """A source of weights for `given`: the first wrong token counts ten times."""
    found = []
    for ids, mistake in zip(completion_ids, LABELS.mistakes, strict=True):
        weights = [1.0] * len(ids)
        if mistake is not None:
            weights[mistake] = 10.0
        found.append(weights)
    return found


def right_lines(completions, **columns) -> list[list[tuple[int, int, float]]]:
    """A source of step rewards for `given`: 1 for each line before the first mistake, 0 for the others."""
    found = []
    for text, mistake in zip(completions, LABELS.offsets, strict=True):
        right = len(text) if mistake is None else mistake
        found.append([(start, end, float(end <= right)) for start, end in lines_of(text)])
    return found


def lines_of(text: str) -> list[tuple[int, int]]:
    """Where each line starts and ends."""
    lengths = map(len, text.splitlines(keepends=True))
    return list(pairwise(accumulate(lengths, initial=0)))


class Rollout:
    """The trainer of the run that goes on, and its reward: what [`line_values`] continues completions with."""

    def __init__(self):
        self.trainer = None
        self.reward = None
        self.continued = []  # tokens that were generated in each rollout batch


ROLLOUT = Rollout()
CONTINUATIONS = 4


def line_values(completions, prompts, completion_ids, **columns) -> list[list[tuple[int, int, float]]]:
    """
    A source of step rewards for `given`: how much each line changes the value of the text so far. The value is the
    mean reward of four continuations, as in VinePPO (arXiv 2410.01679). Before the first line it is the group's mean
    reward, after the last one the completion's reward.
    """
    columns = {name: columns[name] for name in ("solution", "tests") if name in columns}
    rewards = ROLLOUT.reward(completions=completions, prompts=prompts, **columns)
    size = ROLLOUT.trainer.num_generations
    means = torch.tensor(rewards).view(-1, size).mean(dim=1).tolist()  # of the groups
    newline = ROLLOUT.trainer.processing_class.convert_tokens_to_ids("\n")
    starts = []
    for row, ids in enumerate(completion_ids):
        starts += [(row, i + 1) for i, token in enumerate(ids) if token == newline]
    starts.sort(key=lambda start: start[1])  # those that end soon are sampled together; rows stay in their order
    found_values = values_of(starts, prompts, completion_ids, columns)
    values = [[] for _ in completions]
    for (row, _), value in zip(starts, found_values, strict=True):
        values[row].append(value)
    found = []
    for row, text in enumerate(completions):
        lines = lines_of(text)
        between = values[row][: len(lines) - 1]  # without the value after the last line
        reached = [means[row // size], *between, rewards[row]]
        changes = [after - before for before, after in pairwise(reached)]
        # not strict: a completion without text has no line
        found.append([(*line, change) for line, change in zip(lines, changes, strict=False)])
    return found


def values_of(starts, prompts, completion_ids, columns) -> list[float]:
    """The mean reward of continuations of completions from some of their tokens on: pairs of row and token."""
    trainer = ROLLOUT.trainer
    tokenizer = trainer.processing_class
    rows = []
    so_far = []
    for row, end in starts:
        rows += [row] * CONTINUATIONS
        so_far += [completion_ids[row][:end]] * CONTINUATIONS
    prompts = [prompts[row] for row in rows]
    prompt_ids = [tokenizer(prompt).input_ids for prompt in prompts]
    begun = [prompt + ids for prompt, ids in zip(prompt_ids, so_far, strict=True)]
    left = trainer.max_completion_length - min(map(len, so_far), default=0)
    new = sample(trainer.model, tokenizer, begun, left)
    ROLLOUT.continued.append(sum(map(len, new)))
    whole = [ids + more for ids, more in zip(so_far, new, strict=True)]
    texts = tokenizer.batch_decode(whole, skip_special_tokens=True)
    of_rows = {}
    for name, values in columns.items():
        of_rows[name] = [values[row] for row in rows]
    grades = ROLLOUT.reward(completions=texts, prompts=prompts, **of_rows)
    return torch.tensor(grades).view(-1, CONTINUATIONS).mean(dim=1).tolist()


def with_mean_one(weights: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:  # (N,), (2, N) -> (N,)
    """Weights divided by their mean over the tokens with A ≠ 0, in one process, and 1 for the others."""
    trains = sides.any(dim=0)
    total = weights[trains].sum()
    if total == 0:
        return torch.ones_like(weights)
    return torch.where(trains, weights * trains.sum() / total, 1.0)


def side_means(values: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:  # (N,), (2, N) -> (2,)
    """The mean of winners and of losers; 0 without any."""
    return (sides * values).sum(dim=1) / sides.sum(dim=1).clamp(min=1)


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
        winners, losers = sides  # (N,)
        mistakes = LABELS.of_rows(tokens)  # (B,)
        positions = tokens.mask.cumsum(dim=1) - 1  # (B, T), of each token in its completion
        position = tokens.flat(positions)
        wrong = tokens.flat(positions == mistakes[:, None])
        n_groups = int(tokens.group.max()) + 1
        places = torch.zeros(n_groups, tokens.mask.size(1), dtype=torch.bool, device=mistakes.device)
        lost = wrong & losers
        places[tokens.group[lost], position[lost]] = True
        of_siblings = places[tokens.group, position]
        decides = torch.where(winners, of_siblings, wrong)
        masked = winners | losers if self.winners else losers
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
        mean = side_means(weights, sides)
        scale = mean.new_tensor([1.0, self.losers]) / mean.clamp(min=1e-6)
        scale_of_each = torch.where(sides[0], scale[0], scale[1])
        return with_mean_one(weights * scale_of_each, sides)


@dataclass
class SiblingValue(TokenCredit):
    r"""
    Weighs the tokens at which a response turns towards its outcome, as seen from the other responses to its prompt.

    With s_t the final hidden state after token t, and s_u^b the states of every other response b of the group,

        k_b(s) = exp(-(min_u |s - s_u^b| / h)²),   h = bandwidth · |std(s)|,
        V(s)   = Σ_b k_b(s) A_b / (Σ_b k_b(s) + 1e-3)
        j_t    = sign(A) (V(s_t) - V(s_{t-1}))

    V is the mean advantage of those that passed through a similar state. Where it jumps towards the response's own
    outcome, x = max(j, 0) over its mean on the side (at least 1e-3), and the weight is low + (1 - low) x / (1 + x).
    No state follows the last token, so its jump is 0.

    Args:
        low (`float`, *optional*, defaults to `0.1`): The least weight; the largest is below 1.
        bandwidth (`float`, *optional*, defaults to `0.1`): h, in units of the norm of the states' standard deviation.
    """

    low: float = 0.1
    bandwidth: float = 0.1

    @property
    def needs_hidden_states(self) -> bool:
        return True

    def of_rollout(self, tokens: Tokens) -> Credit:
        A, sides = split_sides(tokens.advantages)
        states = all_states(tokens.hidden)
        jumps = torch.zeros_like(A)
        for group in tokens.group.unique():
            members = (tokens.group == group).nonzero()[:, 0]
            found = sibling_jumps(states[members], A[members], tokens.row[members], self.bandwidth)
            jumps[members] = found.to(A)
        jumps_towards = jumps * A.sign()
        towards = jumps_towards.clamp(min=0)
        mean = side_means(towards, sides)
        own_mean = torch.where(sides[0], mean[0], mean[1]).clamp(min=1e-3)
        x = towards / own_mean
        weights = self.low + (1 - self.low) * x / (1 + x)
        return Credit(with_mean_one(weights.float(), sides))


def all_states(hidden: HiddenStates) -> torch.Tensor:  # (N, d)
    """A copy of all hidden states in one tensor."""
    return torch.cat([states.float() for _, states in hidden.chunks()])


def sibling_jumps(
    states: torch.Tensor, advantages: torch.Tensor, rows: torch.Tensor, bandwidth: float
) -> torch.Tensor:
    """
    V(s_t) - V(s_{t-1}) of the n tokens of a group, see [`SiblingValue`].

    Args:
        states (`torch.Tensor` of shape `(n, d)`): Those that predicted the tokens: s_{t-1} of each.
        advantages, rows (`torch.Tensor` of shape `(n,)`): Advantage and index of each token's response; in order.
        bandwidth (`float`): See [`SiblingValue`].
    """
    h = bandwidth * states.std(dim=0, unbiased=False).norm()
    h = h.clamp(min=1e-8)
    weighted = torch.zeros_like(states[:, 0])
    mass = torch.zeros_like(weighted)
    responses, counts = rows.unique_consecutive(return_counts=True)
    ends = counts.cumsum(0)
    starts = ends - counts
    for response, start, end in zip(responses, starts, ends, strict=True):
        nearest = torch.cdist(states, states[start:end]).amin(dim=1)
        similarity = torch.exp(-((nearest / h) ** 2))
        similarity *= rows != response  # a response is no sibling of its own
        weighted += similarity * advantages[start]
        mass += similarity
    value = weighted / (mass + 1e-3)
    after = value.roll(-1)
    after[ends - 1] = value[ends - 1]
    return after - value
