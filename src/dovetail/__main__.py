"""The programs `dovetail` and `kubectl-dovetail`, and `python -m dovetail`."""

from dovetail.interrupts import end_at_once, raise_interrupts

end_at_once()  # before anything that takes long to import


def main() -> None:
    """Run the command line and exit with its code."""
    from dovetail.cli.main import main as run  # noqa: PLC0415  (see above)

    raise_interrupts()
    try:
        run()
    finally:
        end_at_once()  # while the interpreter ends, too


if __name__ == "__main__":
    main()
