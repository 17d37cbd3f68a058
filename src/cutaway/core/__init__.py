"""What every package uses: errors, name lookup, specs and addresses, digests, text sets."""
