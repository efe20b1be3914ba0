"""Abilities that nothing below imports: language models, prompted models, the site."""
