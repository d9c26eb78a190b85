-- The change time of the inode as it was last looked at; NULL is not known, and then not compared.

ALTER TABLE files ADD COLUMN changed_at INTEGER;

-- Files that hold nothing themselves: those that were skipped, since another file holds their content.
CREATE INDEX files_without_records ON files (content_hash)
    WHERE content_hash IS NOT NULL AND rows_loaded = 0 AND rows_quarantined = 0;
