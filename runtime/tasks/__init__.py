"""A task's own processes and its directory: spawner, shim, and what others can see of them; standard library only.

The spawner forks a shim for each task, the shim starts the command, outlives whoever asked for it, and writes down how
it ended. `directory` names and writes the files, `control` hands a shim an order, `looking` says what became of a task,
`survivors` finds what a killed shim left. Nothing here knows a journal, has a thread or an event loop.
"""
