"""The command line: options, launching and supervising runs, one file a group of commands."""
