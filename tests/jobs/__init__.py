"""Jobs with their GPUs: filing, life and output."""
