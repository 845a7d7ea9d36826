"""TRL's model card with a section on the method, for any `GRPOTrainer`."""

from pathlib import Path

from trl import GRPOTrainer


class CardWithMethod(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] whose model card ends with a section on the method of a subclass. The rest is TRL's card.

    Attributes:
        method (`str`, *optional*): The section, in Markdown, with its heading.
    """

    method: str | None = None

    def create_model_card(self, *args, **kwargs):
        super().create_model_card(*args, **kwargs)
        if self.method and self.is_world_process_zero():
            with Path(self.args.output_dir, "README.md").open("a", encoding="utf-8") as card:
                card.write(f"\n\n{self.method}\n")
