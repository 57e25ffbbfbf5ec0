"""I6: the database knows the legal moves of a GPR, and that an ended one stays ended; and the one row whose lock orders planners."""

from django.db import migrations

from core.vendor_sql import vendor_sql

MOVES = [
    ("PENDING_APPROVAL", "QUEUED"),
    ("PENDING_APPROVAL", "REJECTED"),
    ("PENDING_APPROVAL", "CANCELED"),
    ("QUEUED", "PROVISIONING"),
    ("QUEUED", "PENDING_APPROVAL"),
    ("QUEUED", "REJECTED"),
    ("QUEUED", "CANCELED"),
    ("PROVISIONING", "ACTIVE"),
    ("PROVISIONING", "EXITING"),
    ("ACTIVE", "EXITING"),
    ("EXITING", "COMPLETED"),
    ("EXITING", "RELEASED"),
    ("EXITING", "EVICTED"),
    ("EXITING", "FAILED"),
    ("EXITING", "QUEUED"),
]
LEGAL = ", ".join(f"('{old}', '{new}')" for old, new in MOVES)
FIRST = "('PENDING_APPROVAL', 'QUEUED')"

POSTGRESQL = [
    """
    CREATE FUNCTION gpr_gpr_illegal_move() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'gpr_legal_move: a GPR cannot become %', NEW.state USING ERRCODE = 'check_violation';
    END $$
    """,
    f"""
    CREATE TRIGGER gpr_legal_move BEFORE UPDATE OF state ON gpr_gpr FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN ({LEGAL})) EXECUTE FUNCTION gpr_gpr_illegal_move()
    """,
    f"""
    CREATE TRIGGER gpr_legal_birth BEFORE INSERT ON gpr_gpr FOR EACH ROW
    WHEN (NEW.state NOT IN {FIRST}) EXECUTE FUNCTION gpr_gpr_illegal_move()
    """,
    "INSERT INTO gpr_witness (singleton) VALUES (true)",
]
SQLITE = [
    f"""
    CREATE TRIGGER gpr_legal_move BEFORE UPDATE OF state ON gpr_gpr
    WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES {LEGAL})
    BEGIN SELECT RAISE(ABORT, 'gpr_legal_move'); END
    """,
    f"""
    CREATE TRIGGER gpr_legal_birth BEFORE INSERT ON gpr_gpr WHEN NEW.state NOT IN {FIRST}
    BEGIN SELECT RAISE(ABORT, 'gpr_legal_birth'); END
    """,
    "INSERT INTO gpr_witness (singleton) VALUES (1)",
]
UNDO_ROW = "DELETE FROM gpr_witness"


class Migration(migrations.Migration):
    dependencies = [("gpr", "0002_initial")]
    operations = [
        vendor_sql(
            postgresql=POSTGRESQL,
            sqlite=SQLITE,
            undo_postgresql=["DROP FUNCTION gpr_gpr_illegal_move CASCADE", UNDO_ROW],
            undo_sqlite=["DROP TRIGGER gpr_legal_move", "DROP TRIGGER gpr_legal_birth", UNDO_ROW],
        )
    ]
