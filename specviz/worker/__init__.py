"""The process that holds the models: what can be asked of it, from outside and from within."""
