"""The tasks that protectors are meta-trained on: families of them, by the names of their public sources."""
