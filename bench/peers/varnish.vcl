vcl 4.1;
# Varnish's built-in policy as shipped; the command line (crates/lab/src/bin/bench-cache/peers.rs) gives it
# -s malloc, one pool of threads, and takes the shared-memory log off the hot path.
backend default {
    .host = "127.0.0.1";
    .port = "@ORIGIN_PORT@";
}
