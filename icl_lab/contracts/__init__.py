"""What every part of a kind must keep to, as checks that need no test runner: ours and those from outside."""
