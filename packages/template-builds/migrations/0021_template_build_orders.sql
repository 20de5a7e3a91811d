-- What a template build was asked for: the limits of its template, and its order, so that another server can run it again.
ALTER TABLE template_builds ADD COLUMN resources TEXT NOT NULL DEFAULT '{}';
-- Null before the start, after the end, and for an order with credentials, which are in memory only.
ALTER TABLE template_builds ADD COLUMN build_order TEXT;
-- How many servers have begun it.
ALTER TABLE template_builds ADD COLUMN runs {integer} NOT NULL DEFAULT 0;
