"""The commands of `delta-trl` that are more than a function of their room: train, dry run, inspect, explain."""
