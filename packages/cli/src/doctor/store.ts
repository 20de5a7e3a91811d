/** Probes the store of the server, with the address and the credentials that this command finds. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TorporError } from '@torpor/protocol';
import type { Check } from './check.ts';

/** No check when the server has no store. */
export async function checkStore(
  dataDir: string,
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<Check[]> {
  const address = env['TORPOR_STORE'] || (await storeOfServer(dataDir));
  if (address === undefined) return [];
  const what = 'Store';
  const { probeStore } = await import('@torpor/server');
  try {
    await probeStore(address, env, signal);
    return [{ is: 'good', what, detail: `${address} takes, lists, returns and deletes objects` }];
  } catch (thrown) {
    const { message, hint } = TorporError.from(thrown);
    return [{ is: 'wrong', what, detail: message, todo: hint }];
  }
}

/** A running server writes the address of its store beside its own. */
async function storeOfServer(dataDir: string): Promise<string | undefined> {
  try {
    const { store } = Object(JSON.parse(await readFile(join(dataDir, 'server.json'), 'utf8')));
    return typeof store === 'string' ? store : undefined;
  } catch {
    return undefined;
  }
}
