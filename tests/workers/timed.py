"""What differs between two runs of the same specification, seed and machine."""

TIMED = ("env.json", "manifest.json")  # the one holds times, the other its checksum
