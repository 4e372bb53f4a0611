"""What every suite measures with: runs made of rounds, processes that are measured, the machine, and room on it."""
