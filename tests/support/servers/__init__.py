"""Real servers for tests: each starts on a free port and ends with the process that started it."""
