"""Has one file for each group of commands; `cli/main.py` names them."""
