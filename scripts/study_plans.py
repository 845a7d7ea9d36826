"""
The two studies of scripts/study.py: variants, tasks, learning rates, seeds, and the order of the runs.

`CREDIT` (docs/study.md) compares losses, DelTA and its ablations. `BALANCE` (docs/study_plan.md) asks how much is the
balance of winners against losers, and what is left for the choice of tokens.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from study_runs import Run, study_runs, tuned_rates, tuning_runs


DAPO = {"token_credit": "none", "loss_type": "dapo"}  # with DeltaGRPOConfig's clip range, 0.2 and 0.28
GRPO = {"token_credit": "none", "loss_type": "grpo", "epsilon_high": 0.2}
RATES = (1e-4, 2.5e-4, 6e-4)
COMMON_RATE = 2.5e-4  # what DAPO's tuning chose on both tasks of the first study; every variant also runs with it


@dataclass(frozen=True)
class Study:
    """
    Args:
        name (`str`): Its rows are in docs/results/NAME.jsonl.
        tasks (`tuple[str, ...]`): Of `delta_trl.tasks`; `"NAME+lora"` trains LoRA adapters.
        variants (`dict[str, dict]`): Options of [`DeltaGRPOConfig`].
        rollouts (`dict[str, int]`): Rollout batches of a run, by phase.
        seeds (`int`): How many.
        samples (`int`): For each test problem after training.
        stages (`Callable`):
            From the study, tasks, variants, seeds and a function that reads finished rows: lists of runs, each to be
            done before the next is asked for.
        rates (`dict[str, tuple[float, ...]]`): Learning rates that are tried on tasks, if not `RATES`.
        tuning_seeds (`dict[str, tuple[int, ...]]`): Of tasks, if not 1000 and 1001.
        controls (`dict[str, str]`): Variants that run at the learning rate tuned for another one, which they control.
    """

    name: str
    tasks: tuple[str, ...]
    variants: dict[str, dict]
    rollouts: dict[str, int]
    seeds: int
    samples: int
    stages: Callable[..., Iterator[list[Run]]]
    rates: dict[str, tuple[float, ...]] = field(default_factory=dict)
    tuning_seeds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    controls: dict[str, str] = field(default_factory=dict)

    def tuning(self, cells: Iterable[tuple[str, str]]) -> list[Run]:
        """The tuning runs of some (task, variant)."""
        bases = dict.fromkeys((task, self.controls.get(variant, variant)) for task, variant in cells)
        return tuning_runs(
            bases, lambda task: self.rates.get(task, RATES), lambda task: self.tuning_seeds.get(task, (1000, 1001))
        )

    def tuned(self, rows: list[dict], cells: Iterable[tuple[str, str]]) -> dict[tuple, float]:
        """The learning rate of each (task, variant)."""
        cells = list(cells)
        bases = {(task, self.controls.get(variant, variant)) for task, variant in cells}
        rates = tuned_rates(rows, bases)
        return {(task, variant): rates[task, self.controls.get(variant, variant)] for task, variant in cells}


# --- which token credit learns best? --------------------------------------------------------------------------------


def credit_stages(study: Study, tasks, variants, seeds, read: Callable[[], list[dict]]) -> Iterator[list[Run]]:
    cells = [(task, variant) for task in tasks for variant in variants]
    yield study.tuning(cells)
    yield study_runs(study.tuned(read(), cells), seeds)
    yield study_runs(dict.fromkeys(cells, COMMON_RATE), seeds)


CREDIT = Study(
    name="study",
    tasks=("arithmetic", "programs"),
    variants={
        "dapo": DAPO,
        "grpo": GRPO,
        "forking_tokens": {**DAPO, "top_entropy_quantile": 0.2},
        "sapo": {"token_credit": "none", "loss_type": "sapo"},
        "fipo": {"token_credit": "fipo", "delta": 10.0},
        "delta": {"token_credit": "delta"},
        "delta_topk": {"token_credit_kwargs": {"token_gradient": "topk_hidden", "token_gradient_top_k": 5}},
        "delta_lm_head": {"token_credit_kwargs": {"token_gradient": "lm_head"}},
        "delta_full": {"token_credit_kwargs": {"token_gradient": "full"}},
        "random": {"token_credit": "random"},
        "within_side": {"token_credit": "within_side"},
        "side_mean": {"token_credit": "side_mean"},
        "balance_sides": {"token_credit_kwargs": {"balance_sides": True}},
        "select_top": {"token_credit": "selected"},
        "select_bottom": {"token_credit": "selected", "token_credit_kwargs": {"which": "bottom"}},
        "select_random": {"token_credit": "selected", "token_credit_kwargs": {"which": "random"}},
    },
    rollouts={"tune": 10, "study": 16},
    seeds=8,
    samples=1,
    stages=credit_stages,
    tuning_seeds={"arithmetic": (1000,)},  # one where it is as clear as there
)

# --- how much is the balance of sides, and what is left for tokens? -------------------------------------------------


def rule(name: str, **options) -> dict:
    return {"token_credit": name, "token_credit_kwargs": options}


def changed(change: str, of: dict, **options) -> dict:
    """A rule that changes the weights of another variant's."""
    return rule(change, rule=of["token_credit"], rule_kwargs=of.get("token_credit_kwargs", {}), **options)


ORACLE = rule("study_rules.Oracle")
# Rules that choose among tokens. Each also runs shuffled within responses, and as the mean of its sides.
TOKEN_RULES = {
    "delta": rule("delta"),
    "group_contrast": rule("group_contrast"),
    "delta_full": rule("delta", token_gradient="full"),
    "advantage_reweighting": rule("advantage_reweighting"),
    "stare": rule("stare"),
    "optimal_token_baseline": rule("optimal_token_baseline"),
    "probable_losers": rule("study_rules.ProbableLosers"),
    "oracle": ORACLE,
    "oracle_both": rule("study_rules.Oracle", winners=True),
    "oracle_rest_0.2": rule("study_rules.Oracle", rest=0.2),
}
SHUFFLED = {f"{name}_shuffled": changed("shuffled", of) for name, of in TOKEN_RULES.items()}
SIDE_MEAN = {f"{name}_side_mean": changed("side_mean", of) for name, of in TOKEN_RULES.items()}
AT_02 = changed("study_rules.AtSideWeight", ORACLE, losers=0.2)
BALANCE_VARIANTS = {
    "dapo": DAPO,
    "grpo": GRPO,
    **{f"losers_{weight:g}": rule("side_weights", losers=weight) for weight in (0, 0.1, 0.2, 0.5, 2)},
    "adaptive_sides": rule("study_rules.AdaptiveSides"),
    "pass_rate_sides": rule("study_rules.PassRateSides"),
    **TOKEN_RULES,
    **SHUFFLED,
    **SIDE_MEAN,
    # Masks of losers, 20 % of each response. Their shuffled control is top_random, the side-matched one losers_0.2.
    "top_surprisal": rule("surprisal"),
    "top_entropy": rule("entropy"),
    "top_sibling": changed("study_rules.TopOfLosers", rule("sibling_value")),
    "top_group": changed("study_rules.TopOfLosers", rule("group_contrast")),
    "top_random": changed("study_rules.TopOfLosers", rule("random")),
    # all of the losers' weight, 0.2 of the winners', on their mistakes; its side-matched control is losers_0.2
    "oracle_at_0.2": AT_02,
    "oracle_at_0.2_shuffled": changed("shuffled", AT_02),
}
CONTROLS = {name: name.removesuffix("_shuffled").removesuffix("_side_mean") for name in (*SHUFFLED, *SIDE_MEAN)}
CONTROLS["oracle_at_0.2_shuffled"] = "oracle_at_0.2"

# What runs where, the most telling first
MAIN = (
    *("dapo", "losers_0", "losers_0.2", "losers_0.5", "adaptive_sides", "pass_rate_sides"),
    *("delta", "delta_side_mean", "delta_shuffled"),
    *("group_contrast", "group_contrast_side_mean", "group_contrast_shuffled"),
    *("oracle", "oracle_side_mean", "oracle_shuffled"),
    *("top_sibling", "top_surprisal", "top_random"),
    *("optimal_token_baseline", "optimal_token_baseline_side_mean"),
)
CORE = tuple(v for v in MAIN if not v.endswith("_shuffled") and v not in ("losers_0.5", "top_surprisal"))
LORA = tuple(
    v for v in CORE if not v.startswith(("group_", "optimal_")) and v not in ("pass_rate_sides", "top_random")
)
REST = tuple(v for v in BALANCE_VARIANTS if v not in MAIN)
LONGEST = ("dapo", "losers_0.2", "adaptive_sides", "delta", "oracle", "oracle_side_mean")
LONG_RUNS = ("dapo", "losers_0", "losers_0.2", "adaptive_sides", "oracle")
SATURATION = ("dapo", "losers_0.2", "adaptive_sides")

SHORT_TASKS = ("arithmetic", "programs", "sparse", "own_errors")
MAIN_CELLS = [
    *((task, variant) for task in ("arithmetic", "programs", "own_errors") for variant in MAIN),
    *((task, variant) for task in ("sparse", "long") for variant in CORE),
    *(("arithmetic+lora", variant) for variant in LORA),
]
REST_CELLS = [(task, variant) for task in ("arithmetic", "own_errors") for variant in REST]
LONG_CELLS = [(task, variant) for task in SHORT_TASKS for variant in LONG_RUNS]
LONGEST_CELLS = [("longest", variant) for variant in LONGEST]
SATURATION_CELLS = [(task, variant) for task in ("arithmetic", "own_errors") for variant in SATURATION]


def balance_stages(study: Study, tasks, variants, seeds, read: Callable[[], list[dict]]) -> Iterator[list[Run]]:
    """Main variants everywhere, long runs of the best, then the rest: what is there is always worth reading."""

    def chosen(cells):
        return [(task, variant) for task, variant in cells if task in tasks and variant in variants]

    def runs(cells, some_seeds, phase="study"):
        return study_runs(study.tuned(read(), chosen(cells)), some_seeds, phase)

    yield study.tuning(chosen(MAIN_CELLS))
    yield runs(MAIN_CELLS, seeds)
    yield runs(LONG_CELLS, seeds[:5], "long")
    yield study.tuning(chosen(REST_CELLS))
    yield runs(REST_CELLS, seeds[:8])
    yield study.tuning(chosen(LONGEST_CELLS))
    yield runs(LONGEST_CELLS, seeds[:6])
    yield runs(SATURATION_CELLS, seeds[:3], "saturation")
    # tuning is noisy: the main variants at the rate that suits DAPO, where their own is another
    short = [cell for cell in chosen(MAIN_CELLS) if cell[0] in SHORT_TASKS]
    of_dapo = study.tuned(read(), chosen((task, "dapo") for task in SHORT_TASKS))
    yield study_runs({cell: of_dapo[cell[0], "dapo"] for cell in short if (cell[0], "dapo") in of_dapo}, seeds[:8])


BALANCE = Study(
    name="balance",
    tasks=(*SHORT_TASKS, "long", "arithmetic+lora", "longest"),
    variants=BALANCE_VARIANTS,
    rollouts={"tune": 10, "study": 16, "long": 64, "saturation": 256},
    seeds=16,
    samples=4,
    stages=balance_stages,
    rates={
        "own_errors": (5e-5, *RATES),
        "arithmetic+lora": (1e-3, 2.5e-3, 6e-3),  # adapters want ten times as much
    },
    tuning_seeds={"longest": (1000,)},  # a run takes more than a minute
    controls=CONTROLS,
)
STUDIES = {"credit": CREDIT, "balance": BALANCE}
