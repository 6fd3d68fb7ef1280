"""Which drafter and which gamma to deploy, and whether to speculate at all: measured sweeps."""
