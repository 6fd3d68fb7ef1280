"""What everything else is made of: the events of a run."""
