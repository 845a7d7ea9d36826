"""The settings of a run for its page: the main ones, and those that differ between two runs."""

from typing import Any

from .run import Run
from .text import visible


# Options that do not change training: where a run writes, what it prints, what it records
BESIDE = {"output_dir", "run_name", "hub_model_id", "project", "trackio_space_id", "report_to", "terminal"}
BESIDE |= {"overwrite_output_dir", "resume_from_checkpoint", "log_completions", "num_completions_to_print"}
BESIDE |= {"log_token_credit", "log_token_credit_completions", "log_token_credit_max_mb"}
# Arguments that the record also has elsewhere, in more detail
REPEATED = {"token_credit", "token_credit_kwargs", "model_name_or_path", "dataset_name", "reward_funcs"}
LIMIT = 300  # characters of a value


def main_settings(settings: dict[str, Any]) -> dict[str, str]:
    """The main settings of a record, by their names on the page. Missing ones are left out."""
    arguments, versions = _part(settings, "arguments"), _part(settings, "versions")
    if arguments.get("epsilon_high") is None:
        arguments = arguments | {"epsilon_high": arguments.get("epsilon")}
    rows = settings.get("rows")
    data = settings.get("dataset"), f"{rows:,} rows" if isinstance(rows, int) else None
    steps, epochs = arguments.get("max_steps"), arguments.get("num_train_epochs")
    length = f"{steps:,} optimiser steps" if isinstance(steps, int) and steps > 0 else f"{epochs} epochs"
    shown = {
        "model": settings.get("model"),
        "data": ", ".join(filter(None, data)),
        "rewards": ", ".join(
            name if weight == 1 else f"{weight:g} × {name}" for name, weight in _part(settings, "rewards").items()
        ),
        "token credit": _rule(settings),
        "learning rate": _joined(arguments, "{learning_rate}, {lr_scheduler_type}"),
        "loss": _joined(arguments, "{loss_type}, clipped at {epsilon} and {epsilon_high}, beta {beta}"),
        "rollout batch": _joined(
            arguments,
            "{generation_batch_size} completions, {num_generations} a prompt, at most {max_completion_length} tokens",
        ),
        "sampling": _joined(arguments, "temperature {temperature}, top-p {top_p}"),
        "length": length if steps is not None else None,
        "seed": _joined(arguments, "{seed}"),
        "processes": _joined(settings, "{processes}, {device}"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return {name: visible(str(value), LIMIT) for name, value in shown.items() if value}


def rule_name(settings: dict[str, Any]) -> str | None:
    """The rule of token credit in a record, `"none"` if there was none."""
    return _part(settings, "token_credit").get("rule")


def differing(runs: list[Run]) -> list[dict[str, Any]] | None:
    """
    The settings that differ between two runs, `{"name", "values"}`, without those that do not change training;
    `None` unless both runs have a record.
    """
    records = [run.settings for run in runs if run.settings]
    if len(runs) != 2 or len(records) != 2:
        return None
    same_rule = rule_name(records[0]) == rule_name(records[1])
    flat = [_flat(record, with_options=same_rule) for record in records]
    rows = {name: [one.get(name, "–") for one in flat] for one in flat for name in one}
    return [{"name": visible(name), "values": values} for name, values in rows.items() if values[0] != values[1]]


def _flat(settings: dict[str, Any], with_options: bool) -> dict[str, str]:
    """All settings by name. Options of different rules cannot be compared: rule and options are one value then."""
    flat = {name: settings.get(name) for name in ("model", "dataset", "rows", "processes", "device")}
    flat |= {f"reward {name}": weight for name, weight in _part(settings, "rewards").items()}
    options = _part(_part(settings, "token_credit"), "options")
    flat |= options if with_options else {"token credit": _rule(settings)}
    flat |= _without(_part(settings, "arguments")) | _without(_part(settings, "recipe"))
    flat |= {f"version of {name}": version for name, version in _part(settings, "versions").items()}
    return {name: visible(str(value), LIMIT) for name, value in flat.items()}


def _without(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in BESIDE | REPEATED}


def _part(settings: dict[str, Any], name: str) -> dict[str, Any]:
    part = settings.get(name)
    return part if isinstance(part, dict) else {}


def _joined(values: dict[str, Any], text: str) -> str | None:
    try:
        return text.format_map({key: f"{v:g}" if isinstance(v, float) else v for key, v in values.items()})
    except KeyError:
        return None


def _rule(settings: dict[str, Any]) -> str | None:
    rule, name = _part(settings, "token_credit"), rule_name(settings)
    options = _part(rule, "options")
    changed = [f"{option}={options[option]}" for option in rule.get("changed") or () if option in options]
    return f"{name}, {', '.join(changed) or 'default options'}" if options else name
