"""Meta-training: learning protectors on public tasks, by differentiating the very run that is deployed."""
