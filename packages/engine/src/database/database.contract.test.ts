import { describe } from 'vitest';
import { databaseContract } from '../../testing/database-contract.ts';
import { databaseKinds } from '../../testing/fresh-database.ts';

describe.each(databaseKinds)('the database %s', databaseContract);
