"""All that a results folder holds as static pages: findings, studies, runs, and comparisons made in the browser."""
