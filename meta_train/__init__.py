"""Meta-training: learning protectors on public tasks, by differentiating the same run that is deployed."""
