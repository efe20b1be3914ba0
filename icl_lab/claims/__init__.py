"""Published tables and figures as files, their claims, and what the stored results say of them."""
