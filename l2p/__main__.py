"""`python -m l2p`."""

from l2p.commands.cli import run_process

if __name__ == "__main__":
    run_process()
