"""What happened, who did it and why: the append-only Event; and hints that something changed.

Lives here: Event and its one writer, hints between processes (kick the allocator, wake a parked agent).
Must not live here: the change itself. A hint is never the truth: whoever hears it reads the database.
"""
