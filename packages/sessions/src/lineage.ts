/** Whether a sandbox still has everything it had written at some time: what an agent recorded then is there. */
import type { SandboxView } from '@torpor/protocol';
import type { Context } from './context.ts';

const PAGE = 1_000;
const SEALED: ReadonlySet<string> = new Set(['sandbox.paused', 'sandbox.recovered']);

/** Every start since that generation went on exactly from what was sealed before it. */
export async function keptItsFiles(
  { engine }: Pick<Context, 'engine'>,
  { id: sandboxId, generation }: SandboxView,
  since: number,
): Promise<boolean> {
  if (generation === since) return true;
  let sealed: string | null = null;
  for (let afterSeq = 0; ; ) {
    const events = await engine.events({ sandboxId, afterSeq }, PAGE);
    for (const { type, generation: started, checkpointId, data } of events) {
      if (SEALED.has(type)) sealed = checkpointId;
      if (type !== 'sandbox.resumed' || started <= since) continue;
      const { source, lost } = data as { source?: { checkpointId: string | null }; lost?: string[] };
      if (source?.checkpointId !== sealed || lost?.includes('files') !== false) return false;
    }
    const last = events.at(-1);
    if (last === undefined || events.length < PAGE) return true;
    afterSeq = last.seq;
  }
}
