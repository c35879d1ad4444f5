//! One pinned event loop per core.
