"""
The studies of scripts/studies/study.py: variants, tasks, learning rates, seeds, and the order of the runs.

`CREDIT` compares losses, DelTA and its ablations. `BALANCE` (docs/balance_plan.md) asks how much of the gain comes
from the balance of winners against losers, and how much from the choice of tokens. README.md has the results of both.
`MECHANISM` (docs/mechanism_plan.md) asks why the balance helps. `LANGUAGE` (docs/language_plan.md) compares them on a
language model.
`DYNAMIC_SAMPLING` compares DAPO with and without it, where 5 % of the answers are right and on the language model.
`ELICIT` (docs/elicit_plan.md) compares side weights on models that were taught one task, and on one that knows twelve.
`WEIGHTS` (docs/weights_plan.md) maps the best weight of losers by pass rate, staleness, length and kind of errors.
`CEILING` (docs/ceiling_plan.md) asks whether any token credit in DelTA's range could help where boilerplate dominates.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .runs import Run, best_tuned, run_key, study_runs, tuning_runs


DAPO = {"token_credit": "none", "loss_type": "dapo"}  # with DeltaGRPOConfig's clip range, 0.2 and 0.28
GRPO = {"token_credit": "none", "loss_type": "grpo", "epsilon_high": 0.2}
BASELINE = "dapo"
RATES = (1e-4, 2.5e-4, 6e-4)
EACH, ALL = "each task", "all tasks"
COMMON_RATE = 2.5e-4  # what DAPO's tuning chose on both tasks of the first study
Cell = tuple[str, str]  # task, variant


@dataclass(frozen=True)
class Section:
    """
    Runs that are compared with each other, and done before those of the next section.

    Args:
        title (`str`): Its title in the report.
        cells (`list[Cell]`): Tasks and variants to run.
        seeds (`int`): Number of seeds.
        phase (`str`, *optional*, defaults to `"study"`): A key of `Study.rollouts`.
        rate_of_baseline (`bool`, *optional*, defaults to `False`):
            Whether all run at the learning rate that suits DAPO on the task, and not at their own.
    """

    title: str
    cells: list[Cell]
    seeds: int
    phase: str = "study"
    rate_of_baseline: bool = False


@dataclass(frozen=True)
class Study:
    """
    Args:
        name (`str`): Its rows are in scripts/studies/results/NAME.jsonl.
        variants (`dict[str, dict]`): Options of [`DeltaGRPOConfig`].
        rollouts (`dict[str, int]`): Rollout batches of a run, by phase.
        samples (`int`): Samples of each test problem after training.
        look_samples (`int`, *optional*):
            Samples of each test problem before training and at the looks of long runs. By default `samples`, and looks
            also take many samples of few problems, for pass@k on the way.
        sections (`tuple[Section, ...]`):
            In the order of their runs. A task is one of `scripts.studies.tasks`; `"NAME+lora"` trains LoRA adapters.
        rates (`dict[str, tuple[float, ...]]`): By task, the learning rates to try, if not `RATES`.
        wider_rates (`tuple[float, ...]`):
            Rates to try after these, one by one, while the best of a task is the lowest or the highest that was tried.
        tuning_seeds (`dict[str, tuple[int, ...]]`): By task, the seeds of tuning, if not 1000 and 1001.
        first_seed (`int`, *optional*, defaults to `0`): First seed of the runs that are compared.
        best_of (`dict[str, tuple[str, ...]]`):
            Names in sections that stand for one of several variants: on each task the one that tunes best.
        controls (`dict[str, str]`):
            Variants that run at the learning rate tuned for another one, which they control. They are not compared
            with DAPO.
        side_matched (`dict[str, str]`): Variants that choose tokens, and those with the same weight per side.
        shuffled (`dict[str, str]`): Variants that choose tokens, and those that choose as many at random.
        tests (`tuple[str, ...]`, *optional*, defaults to `(EACH,)`):
            What its plan tests: `EACH` task, and `ALL` tasks together.
        described (`tuple[str, ...]`): Outcomes that its plan describes beside the others, and does not test.
        drawn (`tuple[str, ...]`): Variants whose learning curves the report draws.
    """

    name: str
    variants: dict[str, dict]
    rollouts: dict[str, int]
    samples: int
    sections: tuple[Section, ...]
    look_samples: int | None = None
    rates: dict[str, tuple[float, ...]] = field(default_factory=dict)
    wider_rates: tuple[float, ...] = ()
    tuning_seeds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    first_seed: int = 0
    best_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    controls: dict[str, str] = field(default_factory=dict)
    side_matched: dict[str, str] = field(default_factory=dict)
    shuffled: dict[str, str] = field(default_factory=dict)
    tests: tuple[str, ...] = (EACH,)
    described: tuple[str, ...] = ()
    drawn: tuple[str, ...] = (BASELINE,)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(task for section in self.sections for task, _ in section.cells))

    def tuned_as(self, section: Section, cell: Cell) -> Cell:
        """The task and variant whose tuning sets the learning rate of a cell."""
        task, variant = cell
        return task, BASELINE if section.rate_of_baseline else self.controls.get(variant, variant)

    def learning_rates(self, section: Section, cells: list[Cell], rows: list[dict]) -> dict[Cell, float]:
        """Learning rates by task and variant, from finished tuning runs. Cells with incomplete tuning are missing."""
        tuned = {cell: self.tuned_as(section, cell) for cell in cells}
        done = set(map(run_key, rows))
        complete = [base for base in set(tuned.values()) if done.issuperset(run.key for run in self.tuning([base]))]
        complete = [base for base in complete if not self.wider_tuning([base], rows)]
        rates = {(task, variant): self.rate(task, variant, rows) for task, variant in complete}
        return {cell: rates[base] for cell, base in tuned.items() if base in rates}

    def rates_of(self, task: str) -> tuple[float, ...]:
        return self.rates.get(task, RATES)

    def rate(self, task: str, variant: str, rows: list[dict]) -> float:
        """The learning rate of a task and variant. Needs all of the tuning runs, if there are several rates."""
        rates = self.rates_of(task)
        return rates[0] if len(rates) == 1 else best_tuned(rows, task, (variant,))[1]

    def best(self, cell: Cell, rows: list[dict]) -> Cell:
        """The variant that a name of `best_of` stands for; any other stands for itself. Needs all tuning runs."""
        task, variant = cell
        return (task, best_tuned(rows, task, self.best_of[variant])[0]) if variant in self.best_of else cell

    def tuning(self, cells: list[Cell]) -> list[Run]:
        """The tuning runs of (task, variant): none where there is nothing to choose."""
        choice = [cell for cell in cells if len(self.rates_of(cell[0])) > 1 or cell[1] in self.best_of]
        tried = [(task, variant) for task, name in choice for variant in self.best_of.get(name, (name,))]
        return tuning_runs(dict.fromkeys(tried), self.rates_of, self.tuning_seeds_of)

    def tuning_seeds_of(self, task: str) -> tuple[int, ...]:
        return self.tuning_seeds.get(task, (1000, 1001))

    def wider_tuning(self, cells: list[Cell], rows: list[dict]) -> list[Run]:
        """Tuning runs of (task, variant) at the next of `wider_rates`, where the best so far is at an edge."""
        runs = []
        for task, variant in dict.fromkeys(cells):
            tuning = [row for row in rows if (row["phase"], row["task"], row["variant"]) == ("tune", task, variant)]
            tried = {row["learning_rate"] for row in tuning}
            if not self.wider_rates or not tried:
                continue
            best = best_tuned(tuning, task, (variant,))[1]
            lower = [rate for rate in self.wider_rates if rate < best] if best == min(tried) else []
            higher = [rate for rate in self.wider_rates if rate > best] if best == max(tried) else []
            following = {*sorted(lower)[-1:], *sorted(higher)[:1]}
            runs += tuning_runs([(task, variant)], lambda _, f=following: sorted(f), self.tuning_seeds_of)
        done = set(map(run_key, rows))
        return [run for run in runs if run.key not in done]

    def stages(
        self, chosen: Callable[[Cell], bool], seeds: int, read: Callable[[], list[dict]]
    ) -> Iterator[list[Run]]:
        """
        Lists of runs, each to be done before the next is asked for: for every section the tuning runs, then its own,
        seed by seed.

        Args:
            chosen (`Callable`): Whether to do a (task, variant).
            seeds (`int`): Largest number of seeds of a section.
            read (`Callable`): Reads the finished rows.
        """
        for section in self.sections:
            cells = [cell for cell in section.cells if chosen(cell)]
            tuned = [self.tuned_as(section, cell) for cell in cells]
            yield self.tuning(tuned)
            while wider := self.wider_tuning(tuned, rows := read()):
                yield wider
            rates = self.learning_rates(section, [self.best(cell, rows) for cell in cells], rows)
            last = self.first_seed + min(seeds, section.seeds)
            yield study_runs(rates, range(self.first_seed, last), section.phase)


# --- which token credit learns best? --------------------------------------------------------------------------------


CREDIT_VARIANTS = {
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
}
CREDIT_CELLS = [(task, variant) for task in ("arithmetic", "programs") for variant in CREDIT_VARIANTS]

CREDIT = Study(
    name="credit",
    variants=CREDIT_VARIANTS,
    rollouts={"tune": 10, "study": 16},
    samples=1,
    sections=(
        Section("Learning rates tuned for each variant", CREDIT_CELLS, 8),
        Section("The learning rate that suits DAPO", CREDIT_CELLS, 8, rate_of_baseline=True),
    ),
    tuning_seeds={"arithmetic": (1000,)},  # one seed: the choice is clear there
    tests=(EACH, ALL),
    drawn=(BASELINE, "delta", "delta_full", "side_mean", "select_top", "select_random"),
)

# --- how much is the balance of sides, and what is left for tokens? -------------------------------------------------


def rule(name: str, **options) -> dict:
    return {"token_credit": name, "token_credit_kwargs": options}


def changed(change: str, of: dict, **options) -> dict:
    """A rule that changes the weights of another variant's rule."""
    return rule(change, rule=of["token_credit"], rule_kwargs=of.get("token_credit_kwargs", {}), **options)


ORACLE = rule("scripts.studies.rules.Oracle")
# Rules that choose among tokens. Each also runs shuffled within responses, and as the mean of its sides.
TOKEN_RULES = {
    "delta": rule("delta"),
    "group_contrast": rule("group_contrast"),
    "delta_full": rule("delta", token_gradient="full"),
    "advantage_reweighting": rule("advantage_reweighting"),
    "stare": rule("stare"),
    "optimal_token_baseline": rule("optimal_token_baseline"),
    "probable_losers": rule("scripts.studies.rules.ProbableLosers"),
    "oracle": ORACLE,
    "oracle_both": rule("scripts.studies.rules.Oracle", winners=True),
    "oracle_rest_0.2": rule("scripts.studies.rules.Oracle", rest=0.2),
}
SHUFFLED = {f"{name}_shuffled": changed("shuffled", of) for name, of in TOKEN_RULES.items()}
SIDE_MEAN = {f"{name}_side_mean": changed("side_mean", of) for name, of in TOKEN_RULES.items()}
AT_02 = changed("scripts.studies.rules.AtSideWeight", ORACLE, losers=0.2)
BALANCE_VARIANTS = {
    "dapo": DAPO,
    "grpo": GRPO,
    **{f"losers_{weight:g}": rule("side_weights", losers=weight) for weight in (0, 0.1, 0.2, 0.5, 2)},
    "adaptive_sides": rule("adaptive_sides"),
    "pass_rate_sides": rule("scripts.studies.rules.PassRateSides"),
    **TOKEN_RULES,
    **SHUFFLED,
    **SIDE_MEAN,
    # Masks of losers, 20 % of each response. Their shuffled control is top_random, the side-matched one losers_0.2.
    "top_surprisal": rule("surprisal"),
    "top_entropy": rule("entropy"),
    "top_sibling": changed("scripts.studies.rules.TopOfLosers", rule("sibling_value")),
    "top_group": changed("scripts.studies.rules.TopOfLosers", rule("group_contrast")),
    "top_random": changed("scripts.studies.rules.TopOfLosers", rule("random")),
    # all of the losers' weight, 0.2 of the winners', on their mistakes; its side-matched control is losers_0.2
    "oracle_at_0.2": AT_02,
    "oracle_at_0.2_shuffled": changed("shuffled", AT_02),
}
CONTROLS = {name: name.removesuffix("_shuffled").removesuffix("_side_mean") for name in (*SHUFFLED, *SIDE_MEAN)}
CONTROLS["oracle_at_0.2_shuffled"] = "oracle_at_0.2"

# The variants of each section, the most informative first
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
LONG_AGAIN = [("programs", variant) for variant in LONG_RUNS]
LONGEST_CELLS = [("longest", variant) for variant in LONGEST]
COMMON_CELLS = [cell for cell in MAIN_CELLS if not cell[0].endswith("+lora")]
SATURATION_CELLS = [(task, variant) for task in ("arithmetic", "own_errors") for variant in SATURATION]


# Masks of losers have the weight per side of losers_0.2, whichever 20 % they choose.
MASKS = tuple(name for name in BALANCE_VARIANTS if name.startswith("top_"))

BALANCE = Study(
    name="balance",
    variants=BALANCE_VARIANTS,
    rollouts={"tune": 10, "study": 16, "long": 64, "saturation": 256},
    samples=4,
    sections=(
        Section("Main", MAIN_CELLS, 16),
        Section("64 rollout batches", LONG_CELLS, 5, "long"),
        Section("The rest of the variants", REST_CELLS, 8),
        # added after the long runs were seen: there, short tuning gave DAPO alone the lower rate
        Section(
            "64 rollout batches of `programs`, at the learning rate that suits DAPO",
            LONG_AGAIN,
            5,
            "long",
            rate_of_baseline=True,
        ),
        Section("The longest task", LONGEST_CELLS, 6),
        Section("256 rollout batches", SATURATION_CELLS, 3, "saturation"),
        # tuning is noisy: the main variants at the rate that suits DAPO, where their own is another
        Section("Main, at the learning rate that suits DAPO", COMMON_CELLS, 8, rate_of_baseline=True),
    ),
    rates={
        "own_errors": (5e-5, *RATES),
        "arithmetic+lora": (1e-3, 2.5e-3, 6e-3),  # adapters need ten times as much
    },
    tuning_seeds={"longest": (1000,)},  # a run takes more than a minute
    controls=CONTROLS,
    side_matched={
        **{name: f"{name}_side_mean" for name in TOKEN_RULES},
        **dict.fromkeys((*MASKS, "oracle_at_0.2"), "losers_0.2"),
    },
    shuffled={
        **{name: f"{name}_shuffled" for name in (*TOKEN_RULES, "oracle_at_0.2")},
        **{name: "top_random" for name in MASKS if name != "top_random"},
    },
    drawn=(BASELINE, "losers_0", "losers_0.2", "adaptive_sides", "delta", "oracle"),
)

# --- what is it about the balance that helps? -----------------------------------------------------------------------


def unit_steps(of: dict) -> dict:
    """A variant whose gradient is always scaled down to the same norm, so that all steps are alike for AdamW."""
    return {**of, "max_grad_norm": 0.01}


LOSERS_WEIGHTS = (0.01, 0.03, 0.1, 0.3, 1)
EXACT = {
    f"exact_{weight:g}_unit": unit_steps(changed("scripts.studies.rules.AtSideWeight", ORACLE, losers=weight))
    for weight in LOSERS_WEIGHTS
}
UNIFORM = {f"uniform_{weight:g}_unit": unit_steps(rule("side_weights", losers=weight)) for weight in LOSERS_WEIGHTS}
MECHANISM_ARMS = {
    "dapo": DAPO,
    "losers_0.2": rule("side_weights", losers=0.2),
    "annealed": rule("scripts.studies.rules.Annealed"),
    "prompt_weights": rule("scripts.studies.rules.PromptWeights"),
    "losers_0.2_not_annealed": rule("scripts.studies.rules.NotAnnealed"),
    "dapo_unit": unit_steps(DAPO),
    "losers_0.2_unit": unit_steps(rule("side_weights", losers=0.2)),
    "winners_0.2": rule("side_weights", winners=0.2, losers=1.0),
}
BEST = {"exact_best_unit": tuple(EXACT), "uniform_best_unit": tuple(UNIFORM)}
MECHANISM_RATES = {"arithmetic": 2.5e-4, "programs": 2.5e-4, "own_errors": 1e-4, "long": 1e-4}  # BALANCE's for DAPO

MECHANISM = Study(
    name="mechanism",
    variants={**MECHANISM_ARMS, **EXACT, **UNIFORM},
    rollouts={"tune": 16, "study": 16},
    samples=4,
    sections=(
        Section("Mechanism", [(task, arm) for task in MECHANISM_RATES for arm in (*MECHANISM_ARMS, *BEST)], 16),
    ),
    rates={task: (rate,) for task, rate in MECHANISM_RATES.items()},
    tuning_seeds=dict.fromkeys(MECHANISM_RATES, (4000, 4001, 4002, 4003)),
    first_seed=3000,
    best_of=BEST,
)

# --- and on a language model? ---------------------------------------------------------------------------------------


LANGUAGE_RATES = {"sums": 1e-5, "fruits": 1e-5}
LANGUAGE_VARIANTS = {
    "dapo": DAPO,
    "losers_0.2": rule("side_weights", losers=0.2),
    "winners_0.2": rule("side_weights", winners=0.2, losers=1.0),
    "delta": rule("delta"),
}

LANGUAGE = Study(
    name="language",
    variants=LANGUAGE_VARIANTS,
    rollouts={"study": 10},
    samples=8,
    sections=(Section("Main", [(task, arm) for task in LANGUAGE_RATES for arm in LANGUAGE_VARIANTS], 5),),
    rates={task: (rate,) for task, rate in LANGUAGE_RATES.items()},
    first_seed=5000,
    tests=(ALL,),
    described=("accuracy", "pass@8", "entropy"),
    drawn=tuple(LANGUAGE_VARIANTS),
)
# --- groups without contrast ----------------------------------------------------------------------------------------


DYNAMIC_SAMPLING = Study(
    name="dynamic_sampling",
    variants={"dapo": DAPO, "dynamic_sampling": {**DAPO, "dynamic_sampling": True}},
    rollouts={"long": 64, "study": 10},
    samples=4,
    sections=(
        Section("5 % right", [("sparse", arm) for arm in ("dapo", "dynamic_sampling")], 8, "long"),
        # docs/language_plan.md
        Section("A language model", [("sums", arm) for arm in ("dapo", "dynamic_sampling")], 8),
    ),
    rates={"sparse": (COMMON_RATE,), "sums": (LANGUAGE_RATES["sums"],)},
    first_seed=6000,
)

# --- and on models that know something? -----------------------------------------------------------------------------


ELICIT_FAMILIES = ("programs", "edits", "walks")
ELICIT_TASKS = [f"{family}_{start}" for family in ELICIT_FAMILIES for start in ("narrow", "broad")]
ELICIT_ARMS = {
    "dapo": DAPO,
    "losers_0.2": rule("side_weights", losers=0.2),
    "losers_5": rule("side_weights", losers=5.0),
    "annealed": rule("scripts.studies.rules.Annealed"),
}

ELICIT = Study(
    name="elicit",
    variants=ELICIT_ARMS,
    rollouts={"tune": 32, "long": 64},
    samples=64,
    sections=(
        Section(
            "64 rollout batches, at the learning rate that suits DAPO",
            [(task, arm) for task in ELICIT_TASKS for arm in ELICIT_ARMS],
            8,
            "long",
            rate_of_baseline=True,
        ),
    ),
    look_samples=4,
    rates=dict.fromkeys(ELICIT_TASKS, (4e-5, 1e-4, 2.5e-4)),
    wider_rates=(6e-6, 1.6e-5, 6e-4, 1.5e-3),
    tuning_seeds=dict.fromkeys(ELICIT_TASKS, (7100, 7101)),
    first_seed=7000,
    drawn=tuple(ELICIT_ARMS),
)

# --- which weight, where? -------------------------------------------------------------------------------------------


WEIGHTS_OF = {"losers_0.04": 0.04, "losers_0.2": 0.2, BASELINE: 1.0, "losers_5": 5.0}  # of losers; winners have 1
FRESH_SUFFIX = "_fresh"  # one optimiser step per rollout batch
WEIGHTS_TASKS = ("sparse", "arithmetic", "taught_more", "own_fewer", "own_errors", "own_more", "long", "programs")
WEIGHTS_VARIANTS = {name: rule("side_weights", losers=weight) for name, weight in WEIGHTS_OF.items()} | {
    BASELINE: DAPO
}
WEIGHTS_VARIANTS |= {name + FRESH_SUFFIX: {**of, "steps_per_generation": 1} for name, of in WEIGHTS_VARIANTS.items()}

WEIGHTS = Study(
    name="weights",
    variants=WEIGHTS_VARIANTS,
    rollouts={"tune": 16, "study": 16},
    samples=4,
    sections=(Section("Map", [(task, arm) for task in WEIGHTS_TASKS for arm in WEIGHTS_VARIANTS], 8),),
    rates=dict.fromkeys(WEIGHTS_TASKS, (1e-4, 2.5e-4, 6e-4)),
    wider_rates=(1.6e-5, 4e-5, 1.5e-3, 4e-3),
    tuning_seeds=dict.fromkeys(WEIGHTS_TASKS, (8100, 8101)),
    first_seed=8000,
    # all weights at the rate that suits DAPO there
    controls={
        name: BASELINE + (FRESH_SUFFIX if name.endswith(FRESH_SUFFIX) else "")
        for name in WEIGHTS_VARIANTS
        if not name.startswith(BASELINE)
    },
)

# --- could any token credit in DelTA's range help? ------------------------------------------------------------------


def exact_labels(ratio: float) -> dict:
    """Tokens that decide weigh `ratio` times the others, on both sides; the mean weight of either side is 1."""
    labels = rule("scripts.studies.rules.Oracle", winners=True, rest=1 / ratio)
    return changed("scripts.studies.rules.AtSideWeight", labels, losers=1.0)


EXACT_10 = exact_labels(10)
DELTA_LM_HEAD = rule("delta", token_gradient="lm_head")
CEILING_TASKS = ("arithmetic_0", "arithmetic", "arithmetic_24")  # words of boilerplate in a line: 0, 12 and 24
CEILING_ARMS = {
    "dapo": DAPO,
    "exact_1.5": exact_labels(1.5),
    "exact_10": EXACT_10,
    "exact_10_shuffled": changed("shuffled", EXACT_10),
    "delta": rule("delta"),
    "delta_lm_head": DELTA_LM_HEAD,
    "delta_lm_head_side_mean": changed("side_mean", DELTA_LM_HEAD),
    "delta_lm_head_wide": rule("delta", token_gradient="lm_head", lambda_min=0.2, lambda_max=2.0),
}
CEILING = Study(  # docs/ceiling_plan.md
    name="ceiling",
    variants={name: unit_steps(arm) for name, arm in CEILING_ARMS.items()},
    rollouts={"tune": 16, "long": 16},
    samples=4,
    look_samples=4,
    sections=(Section("Ceiling", [(task, arm) for task in CEILING_TASKS for arm in CEILING_ARMS], 24, "long"),),
    rates=dict.fromkeys(CEILING_TASKS, (1e-4, 1.6e-4, 2.56e-4, 4.1e-4, 6.55e-4)),
    tuning_seeds=dict.fromkeys(CEILING_TASKS, (9100, 9101, 9102, 9103)),
    first_seed=9000,
)
STUDIES = {
    study.name: study for study in (CREDIT, BALANCE, MECHANISM, LANGUAGE, DYNAMIC_SAMPLING, ELICIT, WEIGHTS, CEILING)
}
