"""Sets nodes aside, repairs them and takes them back."""
