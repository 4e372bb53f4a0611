"""The main job, to be watched: agents replay transcripts while what serves them is killed, and oracles judge."""
