/**
 * Contenders are measured in turns, so that a slow minute of the host affects all of them. Each rests before its time is
 * measured, with everything prepared: a processor that was busy until just now is quicker.
 */
import type { Times } from '../measure.ts';

export interface Line {
  readonly what: string;
  readonly times: Times;
}

export interface Contender {
  round(): Promise<void>;
  lines(): Line[];
  end(): Promise<void>;
}

export async function inTurns(contenders: readonly Contender[], rounds: number): Promise<void> {
  for (let i = 0; i < rounds; i++) for (const contender of contenders) await contender.round();
}

/** Long enough for a container to be created in advance. */
const REST_MS = 2_000;

export function rest(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, REST_MS));
}

/** Calls that wait until all of them have come: what is prepared one by one starts at once. */
export function barrier(count: number): () => Promise<void> {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  let waiting = 0;
  return () => {
    waiting += 1;
    if (waiting === count) open();
    return opened;
  };
}
