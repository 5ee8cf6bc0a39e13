"""The programs `dovetail` and `kubectl-dovetail`, and `python -m dovetail`."""

from dovetail.interrupts import end_at_once

end_at_once()  # before anything that takes long to import


def main() -> None:
    """Run the command line and exit with its code."""
    from dovetail.cli.main import main as run  # noqa: PLC0415  (see above)

    run()


if __name__ == "__main__":
    main()
