/**
 * Turns of a session: each is given to a program once. Its id is on the disk before the program gets a byte of it,
 * and whoever asks again is told what is written there. When that says less than what happened, because something
 * broke in between, the answer is that it cannot be known.
 */
import { TorporError } from '@torpor/protocol';
import type { TrackedProcess } from '../processes/process-table.ts';
import type { TurnRecords } from './turn-records.ts';
import { parseOrder, type TurnOrder } from './turn-request.ts';

export type Receipt =
  | { readonly is: 'written'; readonly tag: string; readonly offset: number }
  | { readonly is: 'unknown'; readonly why: string };

interface LaunchRequest {
  readonly process: TurnOrder['process'];
  readonly stdin: boolean;
  readonly tag: string;
}

export interface TurnsParts {
  readonly records: TurnRecords;
  readonly launch: (request: LaunchRequest) => Promise<TrackedProcess>;
}

export class Turns {
  readonly #parts: TurnsParts;
  readonly #underWay = new Map<string, Promise<Receipt>>();
  /** Programs that stay between turns, by the name they are kept under; with them they are lost with this process. */
  readonly #kept = new Map<string, { readonly program: string; readonly process: TrackedProcess }>();

  constructor(parts: TurnsParts) {
    this.#parts = parts;
  }

  /** Twins wait for the first. */
  async take(body: unknown): Promise<Receipt> {
    const order = parseOrder(body);
    const known = this.#underWay.get(order.id);
    if (known !== undefined) return known;
    const taking = this.#takeOnce(order).finally(() => this.#underWay.delete(order.id));
    this.#underWay.set(order.id, taking);
    return taking;
  }

  async #takeOnce(order: TurnOrder): Promise<Receipt> {
    const { records } = this.#parts;
    const before = await records.find(order.id);
    if (before?.is === 'written') return before;
    if (before !== undefined) {
      return { is: 'unknown', why: 'the sandbox broke off between recording it and writing it.' };
    }
    await records.write(order.id, { is: 'recorded' });
    const process = await this.#programFor(order).catch(async (thrown: unknown) => {
      // Nothing runs that could have it, so that it may come again.
      await records.forget(order.id);
      throw thrown;
    });
    const offset = order.keep === null ? 0 : process.started.output.writtenBytes;
    const tag = process.tag ?? '';
    try {
      await process.started.write('stdin', Buffer.from(order.input));
      if (order.keep === null) process.started.closeStdin();
    } catch (thrown) {
      // A program may end without reading all of its input; one that stays has not done its work then.
      if (order.keep !== null) return { is: 'unknown', why: TorporError.from(thrown).message };
    }
    const record = { is: 'written', tag, offset } as const;
    await records.write(order.id, record);
    return record;
  }

  async #programFor({ id, keep, process: wanted }: TurnOrder): Promise<TrackedProcess> {
    const request = { process: wanted, stdin: true, tag: id };
    if (keep === null) return this.#parts.launch(request);
    const program = JSON.stringify(wanted.args);
    const running = this.#kept.get(keep);
    if (running?.process.exit === undefined && running?.program === program) return running.process;
    const process = await this.#parts.launch(request);
    this.#kept.set(keep, { program, process });
    return process;
  }
}
