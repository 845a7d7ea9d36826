"""Hidden states of scoring passes: how they are recorded, where they wait, where token credit gets them from."""
