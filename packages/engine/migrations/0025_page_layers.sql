-- The time at which a node of a version that reads page layers joined. A node of an earlier version changes joined_at alone.
ALTER TABLE nodes ADD COLUMN reads_page_layers_since {integer};
