"""specviz against real serving engines that run on this machine."""
