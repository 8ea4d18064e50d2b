"""What is done with plans, phases and tasks."""
