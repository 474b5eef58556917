"""The tasks that protectors are meta-trained on: families of tasks, by the names of their public sources."""
