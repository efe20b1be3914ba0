"""What a run is: its specification, its folder, its measurement, its environment."""
