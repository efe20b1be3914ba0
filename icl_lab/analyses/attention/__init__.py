"""What every head attends to in one prompt, as a page."""
