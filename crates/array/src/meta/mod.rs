//! What the engine keeps on its members: superblocks, map pages, log records. Encoding and decoding only.
