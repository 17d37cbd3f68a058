"""The words every room speaks: errors, lookup, specs and their address, params, text sets."""
