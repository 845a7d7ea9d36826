"""
Dynamic sampling without token credit and under it. The oracle is TRL itself, trained on the prompts that
a loop of a few lines chooses: completions and rewards depend on the prompt, so that both see the same.
"""

import math
import random
import re
from itertools import count, islice
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest
import torch
from datasets import Dataset
from tokenizers import decoders
from trl.chat_template_utils import qwen3_chat_template
from trl.rewards import get_soft_overlong_punishment

from delta_trl import DeltaGRPOTrainer
from delta_trl.rewards import math_reward

from ..corpus import tiny
from ..trainers import TRL, logged, rollout_of, same_weights


SIZE, G, ROUNDS = 2, 4, 2  # groups of a rollout batch, completions of a group, further rounds
METRICS = (
    "rounds",
    "prompts",
    "reward_before",
    "no_contrast_before",
    "no_contrast",
    "tokens_per_trained_token",
)
SPLIT = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "steps_per_generation": 2}
# By prompt, what two functions give to the completions of a group
REWARDS = [
    ([0.1, 0.1, 0.1, 0.1], [0.2, 0.2, 0.2, 0.2]),
    ([0.0, 1.0, 1.0, 0.0], [None, None, None, None]),
    ([None, None, None, None], [None, None, None, None]),
    ([1.0, None, None, None], [None, 1.0, 1.0, None]),  # the same sums, and one completion without a reward
    ([None, 0.5, None, 1.0], [0.5, None, 0.5, None]),
    ([0.5, 0.5, 1.0, None], [0.5, 0.5, 0.0, 1.0]),  # the same sums, but not of normalised rewards
    ([0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]),
]
# The sums of those with a reward
SUMS = [[0.3] * 4, [0.0, 1.0, 1.0, 0.0], [], [1.0] * 3, [0.5, 0.5, 0.5, 1.0], [1.0] * 4, [0.0] * 4]
CONTRAST = {"sum_then_normalize": {1, 4}, "normalize_then_sum": {1, 4, 5}}


# Options of a trainer that samples dynamically, and of one that trains the same without
CREDIT = ({"dynamic_sampling": True, "dynamic_sampling_max_rounds": ROUNDS}, {})
WITHOUT = {"token_credit": "none", "trim_padding": False, "epsilon_high": None}
PLAIN = ({**CREDIT[0], **WITHOUT}, TRL)


def completion(prompt: str, number: int) -> list[int]:
    """Token ids, of many lengths; the first is the completion's number in its group, the second the environment's."""
    draw = random.Random(f"{prompt} {number}")
    length = draw.randrange(1, 9)
    ids = [2 + number, *(draw.randrange(2, 30) for _ in range(length))]
    is_cut_off = draw.random() < 0.2
    return ids if is_cut_off else [*ids, 1]


def rollout_func(prompts, trainer):
    first_row = trainer.accelerator.process_index * len(prompts)
    completions, masks = [], []
    for row, prompt in enumerate(prompts, first_row):
        ids = completion(prompt, row % G)
        completions.append(ids)
        masks.append([int(t != 1) for t in range(len(ids))])
    return {
        "prompt_ids": trainer.processing_class(prompts)["input_ids"],
        "completion_ids": completions,
        "logprobs": None,
        "env_mask": masks,
        "named": [f"{prompt} {row % G}" for row, prompt in enumerate(prompts, first_row)],
        "place": "here",  # of all rows
    }


def tokens(prompts: list[str]) -> int:
    """How many tokens the model sampled for these prompts."""
    total = 0
    for prompt in prompts:
        for number in range(G):
            total += len(completion(prompt, number)) - 1
    return total


def kind(prompt: str) -> int:
    return len(prompt) % len(REWARDS)


def rewards(function: int, prompts, completion_ids, named, place, log_extra, **kwargs):
    assert named == [f"{prompt} {ids[0] - 2}" for prompt, ids in zip(prompts, completion_ids, strict=True)]
    assert place == ["here"] * len(prompts)
    log_extra(f"sum_{function}", [sum(ids) for ids in completion_ids])
    values = []
    for prompt, ids in zip(prompts, completion_ids, strict=True):
        of_group = REWARDS[kind(prompt)][function]
        number = ids[0] - 2
        values.append(of_group[number])
    return values


def first(**kwargs):
    return rewards(0, **kwargs)


async def second(**kwargs):
    return rewards(1, **kwargs)


def texts(n: int) -> list[str]:
    """Prompts whose lengths say which rewards they get, all of `REWARDS` among thirteen."""
    return [(f"{i}+" * 10)[: 1 + 3 * i % 14] for i in range(n)]


def passes(prompts: list[str], shuffled: bool):
    """TRL's order of prompts: pass after pass, without the last ones that fill no rollout batch."""
    n = len(prompts)
    generator = torch.Generator().manual_seed(42)
    while True:
        order = torch.randperm(n, generator=generator).tolist() if shuffled else range(n)
        for i in order[: n // SIZE * SIZE]:
            yield prompts[i]


def brute_force(prompts, batches: int, contrast: set[int], shuffled: bool, weight: float):
    """The prompts that are trained, and the metrics of each rollout batch, in the order of `METRICS`."""
    order = passes(prompts, shuffled)
    trained, metrics = [], []

    def lacks_contrast(prompt: str) -> bool:
        return kind(prompt) not in contrast

    for _ in range(batches):
        first = taken = list(islice(order, SIZE))
        for rounds in range(ROUNDS + 1):
            missing = sum(map(lacks_contrast, taken)) - len(taken) + SIZE
            if missing <= 0 or rounds == ROUNDS:
                break
            found = SIZE - missing
            needed = min(SIZE, math.ceil(missing * len(taken) / found)) if found else SIZE
            taken = [*taken, *islice(order, needed)]
        batch = sorted(taken, key=lacks_contrast)[:SIZE]
        trained += batch
        sums = [sum_ for prompt in first for sum_ in SUMS[kind(prompt)]]
        metrics.append(
            [
                rounds,
                len(taken),
                weight * fmean(sums) if sums else None,
                fmean(map(lacks_contrast, first)),
                fmean(map(lacks_contrast, batch)),
                tokens(taken) / tokens(batch),
            ]
        )
    return trained, metrics


def run(make_trainer, folder: Path, prompts: list[str], resume: str | None = None, **options):
    trainer = make_trainer(
        reward_funcs=[first, second],
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        rollout_func=rollout_func,
        output_dir=str(folder),
        max_completion_length=10,
        log_completions=True,
        num_completions_to_print=0,
        **options,
    )
    trainer.train(resume and str(folder / resume))
    return trainer


def same_training(ours, theirs):
    """Weights, logs and tables of completions, bit for bit."""
    assert same_weights(ours, theirs)
    assert bound_logs(ours) == bound_logs(theirs)
    for our_table, their_table in zip(tables(ours), tables(theirs), strict=True):
        assert our_table.equals(their_table)


def tables(trainer) -> list[pd.DataFrame]:
    folder = Path(trainer.args.output_dir, "completions")
    return [pd.read_parquet(path) for path in sorted(folder.glob("*"))]


def bound_logs(trainer) -> list[dict]:
    """Without what may differ."""
    found = []
    for entry in trainer.state.log_history:
        found.append({name: value for name, value in entry.items() if not is_free(name)})
    return found


def is_free(name: str) -> bool:
    """Whether a logged value may differ: it is of dynamic sampling, of time, or of the run as a whole."""
    return bool(re.search("^dynamic_sampling|skipped_updates|epoch|time|second|train_loss", name))


@pytest.mark.parametrize(
    ("trainers", "options"),
    [
        (
            PLAIN,
            {
                **SPLIT,
                "num_iterations": 2,
                "scale_rewards": "batch",
                "reward_weights": [2.0, 2.0],
                "shuffle_dataset": False,
                "max_steps": 6,
            },
        ),
        (
            CREDIT,
            {
                "multi_objective_aggregation": "normalize_then_sum",
                "mask_truncated_completions": True,
                "max_steps": 6,
                "eval_strategy": "steps",
                "eval_steps": 3,
                "eval_dataset": Dataset.from_dict({"prompt": texts(4)}),
            },
        ),
        (CREDIT, {"token_credit": "fipo", "num_iterations": 2, "trim_padding": False, "max_steps": 8}),
    ],
    ids=["split", "normalised", "fipo"],
)
def test_trains_what_a_loop_chooses(make_trainer, tmp_path, trainers, options):
    per_rollout = options.get("steps_per_generation", 1) * options.get("num_iterations", 1)
    aggregation = options.get("multi_objective_aggregation", "sum_then_normalize")
    prompts = texts(13)
    trained, expected = brute_force(
        prompts,
        math.ceil(options["max_steps"] / per_rollout),
        contrast=CONTRAST[aggregation],
        shuffled=options.get("shuffle_dataset", True),
        weight=options.get("reward_weights", [1.0])[0],
    )
    with_sampling, without = trainers
    ours = run(make_trainer, tmp_path / "ours", prompts, **options, **with_sampling)
    in_order = {**options, "shuffle_dataset": False}
    theirs = run(make_trainer, tmp_path / "theirs", trained, **in_order, **without)
    same_training(ours, theirs)
    for name, *values in zip(METRICS, *expected, strict=True):
        assert logged(ours, f"dynamic_sampling/{name}") == pytest.approx(values), name
    assert len({rounds for rounds, *_ in expected}) > 1


def test_a_resumed_run_equals_an_uninterrupted_one(make_trainer, tmp_path):
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, **CREDIT[0]}
    prompts = texts(13)
    whole = run(make_trainer, tmp_path, prompts, **options)
    resumed = run(make_trainer, tmp_path, prompts, resume="checkpoint-3", **options)
    same_training(resumed, whole)
    taken = whole.dynamic_sampling.prompt_order.taken
    assert resumed.dynamic_sampling.prompt_order.taken == taken
    resumed.train()  # anew, with the prompts from the first one on
    assert resumed.dynamic_sampling.prompt_order.taken == taken


def test_the_share_of_contrast_in_all_rounds_decides_how_many_prompts_follow(make_trainer, rollout):
    """Two groups are missing: after 6 of 8, three prompts follow; after 6 of 11, four."""
    asked = []
    without_contrast = {f"{i}=" for i in range(6, 11)}

    def reward(prompts, **_):
        asked.append(len(prompts) // G)
        return [0.0 if prompt in without_contrast else float(i % 2) for i, prompt in enumerate(prompts)]

    trainer = make_trainer(
        **CREDIT[0],
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": [f"{i}=" for i in range(16)]}),
        shuffle_dataset=False,
        per_device_train_batch_size=8 * G,
    )
    rollout(trainer)
    assert asked == [8, 3, 4]


@rollout_of
def cut_off_first(i: int) -> list[int]:
    return [5, 6, 7] if i % G == 0 else [5, 1]


def test_a_group_whose_contrast_is_masked_has_none(make_trainer, rollout):
    """A completion that is cut off stands out, and the loss leaves it out."""
    trainer = make_trainer(
        **CREDIT[0],
        mask_truncated_completions=True,
        reward_funcs=lambda completion_ids, **_: [float(len(ids) == 3) for ids in completion_ids],
        rollout_func=cut_off_first,
    )
    rollout(trainer)  # the others have advantages of their own, below the mean
    trainer.eos_token_ids = []  # none ends in time: the loss counts none
    rollout(trainer)
    assert trainer._metrics["train"]["dynamic_sampling/no_contrast"] == [0.0, 1.0]


ANSWERS = ["the answer is 4", "so the answer is 5", "i think the answer is 6", "now i think the answer is 7"]


def answers(prompts, trainer) -> dict:
    """Four of unlike lengths to each prompt."""
    encode = trainer.processing_class
    of_group = [[*encode(answer).input_ids, encode.eos_token_id] for answer in ANSWERS]
    ids = of_group * (len(prompts) // G)
    logprobs = [[-token_id / 100 for token_id in row] for row in ids]
    return {"prompt_ids": encode(prompts).input_ids, "completion_ids": ids, "logprobs": logprobs}


def own_reward(**columns):
    """The outcome by a function of the user, which nobody knows to be one."""
    return math_reward(**columns)


@pytest.mark.parametrize(
    ("outcome", "weights", "trained", "best"),
    [
        (math_reward, [1.0, 1.0], ["2+2=", "2+3="], [0, 1]),
        (math_reward, [0.0, 1.0], ["3+5=", "4+5="], [0, 0]),  # which only the penalty trains
        (own_reward, [1.0, 1.0], ["3+5=", "4+5="], [0, 0]),
    ],
    ids=["verified", "without weight", "the user's"],
)
def test_a_length_penalty_is_no_contrast_of_outcomes(make_trainer, rollout, outcome, weights, trained, best):
    """Where every answer is wrong, the shortest one would win."""
    problems = {
        "3+5=": "8",
        "4+5=": "9",
        "2+2=": "4",
        "2+3=": "5",
    }
    length_penalty = get_soft_overlong_punishment(max_completion_len=32, soft_punish_cache=20)
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()  # without spaces between characters
    trainer = make_trainer(
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": list(problems), "solution": list(problems.values())}),
        shuffle_dataset=False,
        reward_funcs=[outcome, length_penalty],
        reward_weights=weights,
        rollout_func=answers,
        max_completion_length=32,
        dynamic_sampling=True,
    )
    batch = rollout(trainer)
    prompts = tokenizer.batch_decode(batch["prompt_ids"], skip_special_tokens=True)
    assert prompts[::G] == trained
    log_probs = -batch["completion_ids"] / 100 * batch["completion_mask"]
    torch.testing.assert_close(batch["sampling_per_token_logps"], log_probs)
    of_groups = batch["advantages"].sum(dim=1).view(2, G)
    assert of_groups.argmax(dim=1).tolist() == best


class Own(DeltaGRPOTrainer):
    """Adds to rewards, and looks at the rows that were trained."""

    rewarded = 0

    def _calculate_rewards(self, *args, **kwargs):
        rewards = super()._calculate_rewards(*args, **kwargs)
        self.rewarded += len(rewards)
        return rewards + torch.arange(len(rewards))[:, None] % G

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        prompts = zip(inputs, batch["prompt_ids"], batch["prompt_mask"].bool(), strict=True)
        for row, ids, mask in prompts:
            assert self.processing_class(row["prompt"]).input_ids == ids[mask].tolist()
        return batch


def minus_own(completions, prompts, **kwargs):
    """Rewards to which the subclass's add up to 0 where prompts are of even length."""
    values = []
    for i, prompt in enumerate(prompts):
        is_even = len(prompt) % 2 == 0
        values.append(-float(i % G) if is_even else 0.0)
    return values


@pytest.mark.parametrize("dynamic_sampling", [True, False])
def test_a_subclass_s_rewards_and_its_inputs(make_trainer, dynamic_sampling):
    trainer = make_trainer(
        trainer_class=Own,
        train_dataset=Dataset.from_dict({"prompt": texts(24)}),
        dynamic_sampling=dynamic_sampling,
        reward_funcs=minus_own,
        max_steps=3,
    )
    trainer.train()
    # the mean of a group that has contrast is 1.5; by chance, one of two or both have
    expected = [1.5, 1.5, 1.5] if dynamic_sampling else [0.75, 1.5, 0.75]
    assert logged(trainer, "reward") == expected
    assert min(logged(trainer, "grad_norm")) > 0
    if dynamic_sampling:
        assert max(logged(trainer, "dynamic_sampling/rounds")) > 0
        sampled = G * sum(logged(trainer, "dynamic_sampling/prompts"))
        assert trainer.rewarded == sampled  # each once


class Game:
    def reset(self, **kwargs):
        """Begin."""


def now() -> str:
    """Tell the time."""


WITH_TOOLS = tiny.tokenizer()
WITH_TOOLS.chat_template = qwen3_chat_template


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_dataset": tiny.dataset().to_iterable_dataset()}, "a streamed train_dataset"),
        ({"tools": [now], "processing_class": WITH_TOOLS}, "tools"),
        ({"environment_factory": Game, "processing_class": WITH_TOOLS}, "environments"),
    ],
    ids=["stream", "tools", "environment"],
)
def test_what_it_cannot_do_is_refused(make_trainer, changes, message):
    with pytest.raises(ValueError, match=f"dynamic_sampling=True .*{message}"):
        make_trainer(**changes, **PLAIN[0])


def in_messages(row: dict) -> dict:
    content = [{"type": "image", "image": "picture"}, {"type": "text", "text": row["prompt"]}]
    return {"prompt": [{"role": "user", "content": content}]}


WITH_IMAGES = [
    tiny.dataset().map(in_messages),
    tiny.dataset().add_column("image", [None] * 16),
    tiny.dataset().add_column("images", [[]] * 16),
]


@pytest.mark.parametrize("data", WITH_IMAGES)
def test_images_are_refused_when_they_come(make_trainer, rollout, data):
    trainer = make_trainer(train_dataset=data, processing_class=WITH_TOOLS, **PLAIN[0])
    with pytest.raises(ValueError, match=r"dynamic_sampling=True .*images"):
        rollout(trainer)


def test_a_column_that_is_logged_in_later_rounds_only(make_trainer, rollout):
    """The first group is of the first round, the second of the next."""
    rounds = count()

    def reward(prompts, completions, log_extra, **columns):
        number = next(rounds)
        if number:
            log_extra("asked again", prompts)
        return [float(i % 2 and (i < G or number > 0)) for i in range(len(completions))]

    trainer = make_trainer(reward_funcs=reward, dynamic_sampling=True, shuffle_dataset=False)
    rollout(trainer)
    of_third = [tiny.dataset()["prompt"][2]] * G
    assert [*trainer._logs["extra"]["asked again"]] == [None] * G + of_third


def test_a_logged_column_with_too_few_values(make_trainer):
    """GRPOTrainer trains all the same."""

    def reward(completions, log_extra, **columns):
        log_extra("first", [1])
        return tiny.reward_letters(completions)

    make_trainer(reward_funcs=reward, dynamic_sampling=True, max_steps=1).train()
