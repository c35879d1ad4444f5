vcl 4.1;
# Varnish's built-in policy as shipped; the command line gives it -s file.
backend default {
    .host = "127.0.0.1";
    .port = "@ORIGIN_PORT@";
}
