/**
 * Writes transactions into the embedded database until it is killed, and acknowledges each after its commit.
 *
 * Usage: node database-kill-child.ts <data directory> <round>
 */
import { writeSync } from 'node:fs';
import { join } from 'node:path';
import { claimDataDirectory } from '../packages/database/src/data-directory.ts';
import { openSqlite } from '../packages/database/src/sqlite.ts';

const [directory = '', round = ''] = process.argv.slice(2);
const WRITERS = 4;
const PARTS = 3;

await claimDataDirectory(directory);
const db = await openSqlite({ path: join(directory, 'torpor.db') });
await Promise.all(Array.from({ length: WRITERS }, (_, writer) => writeForEver(writer)));

async function writeForEver(writer: number): Promise<never> {
  for (let turn = 0; ; turn += 1) {
    const batch = `${round}.${writer}.${turn}`;
    await db.transaction(async (tx) => {
      for (let part = 0; part < PARTS; part += 1) {
        await tx.query('INSERT INTO parts (batch, part, filler) VALUES ($1, $2, $3)', [
          batch,
          part,
          'x'.repeat(500),
        ]);
        await new Promise(setImmediate);
      }
    });
    // Written synchronously: an acknowledgement that is buffered in this process would be lost with it.
    writeSync(1, `${batch}\n`);
  }
}
