"""What the API answers, one file for each of its parts."""
