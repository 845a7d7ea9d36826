"""DelTA among the responses to one prompt."""

from dataclasses import dataclass

from .delta import DelTA


@dataclass
class GroupContrast(DelTA):
    """
    DelTA among the responses to one prompt, on the exact gradient of the LM head: a token counts by how much closer
    its gradient lies to the centroid of its own side in the group. Contrasting a response with its siblings instead of
    the whole rollout batch leaves out differences between prompts. `Selected(GroupContrast())` makes a mask of it.

    Takes the options of [`DelTA`]; `token_gradient` defaults to `"lm_head"` and `centroid_scope` to `"group"`.
    """

    token_gradient: str = "lm_head"
    centroid_scope: str = "group"
