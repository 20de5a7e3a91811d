import { it } from 'vitest';
import fc from 'fast-check';
import { Player } from './play.ts';
import { history } from './steps.ts';
import { HistoryWorld } from './world.ts';
it('one', async () => {
  let n = 0;
  await fc.assert(fc.asyncProperty(history, async (steps) => {
    const world = await HistoryWorld.make('sqlite');
    const t=Date.now();
    try { await new Player(world).play(steps); } catch (e) { console.log('FAIL', (e as Error).message.slice(0,200)); throw e; }
    n++; if (n%20===0) console.log(n, Date.now()-t);
    await world.dispose();
  }), {numRuns: Number(process.env['N']??20), ...(process.env['SEED']?{seed:Number(process.env['SEED'])}:{})});
}, 200000);
