"""What is free: a capacity profile over time, nodes and limits, and the first place and time at which one more box fits."""
