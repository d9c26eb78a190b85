//! The local file system as an object store whose writes survive a power cut.
