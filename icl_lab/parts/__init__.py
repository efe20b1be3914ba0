"""Parts by name: registries of normalizers, tasks and analyses, their options, and parts from outside."""
