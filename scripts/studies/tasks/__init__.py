"""
Small tasks with verifiable rewards, which know the right text of every completion: for studies of token credit, and
for the quickstart. torch only where a model is made.
"""

from .addition import addition
from .programs import programs
from .task import Task, first_mistake, make_problems, right_tokens


TASKS = {
    task.name: task
    for task in (
        addition(),
        addition("arithmetic_0", words_per_line=0),
        addition("arithmetic_24", words_per_line=24),
        programs(),
        addition("sparse", digits=3, words_per_line=8, forgotten_carries=0.85, miscounted_sums=0.48),
        # one right demonstration in a hundred is as long as the task's
        addition("own_errors", digits=4, words_per_line=4, practised_digits={2: 0.495, 3: 0.495, 4: 0.01}),
        addition(
            "long",
            digits=5,
            words_per_line=10,
            forgotten_carries=0.3,
            miscounted_sums=0.06,
            warm_up_steps=500,
            max_length=192,
        ),
        addition(
            "longest",
            digits=7,
            words_per_line=20,
            forgotten_carries=0.2,
            miscounted_sums=0.04,
            warm_up_steps=600,
            max_length=320,
        ),
    )
}
# the same from start models that solve more or fewer of them; these are not shipped
OTHER_STARTS = {
    task.name: task
    for task in (
        addition("taught_more", forgotten_carries=0.4, miscounted_sums=0.04),
        addition("own_fewer", digits=4, words_per_line=4, practised_digits={2: 0.4955, 3: 0.4955, 4: 0.009}),
        addition("own_more", digits=4, words_per_line=4, practised_digits={2: 0.479, 3: 0.479, 4: 0.042}),
    )
}

__all__ = ["OTHER_STARTS", "TASKS", "Task", "addition", "first_mistake", "make_problems", "programs", "right_tokens"]
