/** Fails when an import in packages/ does not follow the arrows. */
import { join } from 'node:path';
import { findViolations } from './arrows/violations.ts';

const violations = findViolations(join(import.meta.dirname, '..'));
for (const violation of violations) console.error(violation);
if (violations.length > 0) process.exitCode = 1;
