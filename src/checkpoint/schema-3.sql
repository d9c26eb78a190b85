-- Files that are loaded, which are nearly all, are not looked for by their state.

DROP INDEX files_by_state;

CREATE INDEX files_to_do ON files (state, path) WHERE state <> 'loaded';
