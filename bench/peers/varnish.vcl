vcl 4.1;
# Varnish's built-in policy as shipped; the command line (crates/lab/src/peers/cache/contenders.rs) gives it
# -s malloc, one pool of threads, and takes the shared-memory log off the hot path. Connections to the backend are kept
# by default, without a bound.
backend default {
    .host = "127.0.0.1";
    .port = "@ORIGIN_PORT@";
}
# By default what is stale is shown for ten seconds while it is asked for behind the visitor's back. Everybody else here
# asks first.
sub vcl_backend_response {
    if (bereq.url ~ "^/checked/") {
        set beresp.grace = 0s;
        set beresp.keep = 1h;
    }
}
