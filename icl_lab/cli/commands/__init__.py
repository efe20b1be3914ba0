"""The commands, by what they are about: a function that ``click.command`` decorates is in the menu."""
