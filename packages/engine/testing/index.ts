export * from './database-contract.ts';
export * from './faulty-runtime.ts';
export * from './fresh-database.ts';
export * from './manual-clock.ts';
export * from './memory-runtime.ts';
export * from './settle.ts';
export * from './virtual-files.ts';
export * from './world.ts';
