import { databaseKinds } from '@torpor/engine/testing';
import { describe } from 'vitest';
import { databaseContract } from '../testing/database-contract.ts';

describe.each(databaseKinds)('the database %s', databaseContract);
