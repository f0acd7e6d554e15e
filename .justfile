# Short names for the project's tasks; `cargo xtask help` lists them all.

test *args:
    cargo xtask test {{args}}

check:
    cargo xtask check

docs:
    cargo xtask docs
