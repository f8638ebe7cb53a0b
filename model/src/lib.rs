//! What a trace is; readers and writers of trace formats.
