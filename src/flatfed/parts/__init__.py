"""Ingredients that more than one paper uses. What a single paper introduced lives in its file."""
