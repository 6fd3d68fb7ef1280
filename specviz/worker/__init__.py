"""Running the models: tasks, and workers that run them in this or in another process."""
