"""Shows the queue of the admin portal: its rows, the figures above them, and one request in focus."""
