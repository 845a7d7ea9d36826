"""
Small tasks with verifiable rewards, which know the right text of every completion: for studies and audits of token
credit, and for the quickstart. torch only where a model is made.
"""

from .addition import addition
from .programs import programs
from .task import Task, first_mistake, make_problems, right_tokens


TASKS = {task.name: task for task in (addition(), programs())}

__all__ = ["TASKS", "Task", "addition", "first_mistake", "make_problems", "programs", "right_tokens"]
