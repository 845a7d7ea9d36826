"""The additions of the first studies from start models that solve more or fewer of them: for the study `weights`."""

from .addition import addition


TASKS = {
    task.name: task
    for task in (
        addition("taught_more", forgotten_carries=0.4, miscounted_sums=0.04),
        addition("own_fewer", digits=4, words_per_line=4, practised_digits={2: 0.498, 3: 0.498, 4: 0.004}),
        addition("own_more", digits=4, words_per_line=4, practised_digits={2: 0.47, 3: 0.47, 4: 0.06}),
    )
}
