"""The additions of the first studies from start models that solve more or fewer of them: for the study `weights`."""

from .addition import addition


TASKS = {
    task.name: task
    for task in (
        addition("taught_more", forgotten_carries=0.4, miscounted_sums=0.04),
        addition("own_fewer", digits=4, words_per_line=4, practised_digits={2: 0.4955, 3: 0.4955, 4: 0.009}),
        addition("own_more", digits=4, words_per_line=4, practised_digits={2: 0.479, 3: 0.479, 4: 0.042}),
    )
}
