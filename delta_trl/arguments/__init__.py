"""What a user asks for: a recipe, flags over it, dotted paths; and the errors that name a mistake in them."""
