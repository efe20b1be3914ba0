"""The commands, one file per subject: a function that ``click.command`` decorates is in the menu."""
