"""What runs in the pods of checks. Each file is a program that is the command of its pod as it stands, and imports nothing of ours."""
