"""The commands `delta-trl train` (also as a dry run), `inspect` and `explain`. Others are in packages of their own."""
