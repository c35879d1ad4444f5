//! The program: command line, configuration, wiring, admin server.
fn main() {}
