"""What the agent makes of a job."""
