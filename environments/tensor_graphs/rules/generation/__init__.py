"""Generate rules as TASO and the thesis (section 3.1) do; `generate` says where it differs."""
