/**
 * Delivers each turn of a session to its program once. The id of the turn is on disk before the program gets a byte of
 * it, and a repeated request is answered from the record. When the agent was interrupted between recording and writing,
 * the answer is that the outcome is unknown.
 */
import { TorporError } from '@torpor/protocol';
import type { TrackedProcess } from '../processes/process-table.ts';
import type { TurnRecords } from './turn-records.ts';
import { parseTurnRequest, type TurnRequest } from './turn-request.ts';

export type TurnReceipt =
  | { readonly is: 'written'; readonly tag: string; readonly offset: number }
  | { readonly is: 'unknown'; readonly why: string };

interface LaunchRequest {
  readonly process: TurnRequest['process'];
  readonly stdin: boolean;
  readonly tag: string;
}

export interface TurnsOptions {
  readonly records: TurnRecords;
  readonly launch: (request: LaunchRequest) => Promise<TrackedProcess>;
}

export class Turns {
  readonly #options: TurnsOptions;
  readonly #inProgress = new Map<string, Promise<TurnReceipt>>();
  /** Processes that are kept between turns, by name. They are lost when the agent ends. */
  readonly #keptProcesses = new Map<string, { readonly program: string; readonly process: TrackedProcess }>();

  constructor(parts: TurnsOptions) {
    this.#options = parts;
  }

  /** Concurrent requests with the same id wait for the first. */
  async deliver(body: unknown): Promise<TurnReceipt> {
    const request = parseTurnRequest(body);
    const known = this.#inProgress.get(request.id);
    if (known !== undefined) return known;
    const taking = this.#deliverOnce(request).finally(() => this.#inProgress.delete(request.id));
    this.#inProgress.set(request.id, taking);
    return taking;
  }

  async #deliverOnce(request: TurnRequest): Promise<TurnReceipt> {
    const { records } = this.#options;
    const before = await records.find(request.id);
    if (before?.is === 'written') return before;
    if (before !== undefined) {
      return {
        is: 'unknown',
        why: 'the agent was interrupted between recording the turn and writing it to the program.',
      };
    }
    await records.write(request.id, { is: 'recorded' });
    const process = await this.#processFor(request).catch(async (thrown: unknown) => {
      // No program has received the turn, so it may be delivered again.
      await records.remove(request.id);
      throw thrown;
    });
    const offset = request.keep === null ? 0 : process.started.output.writtenBytes;
    const tag = process.tag ?? '';
    try {
      await process.started.write('stdin', Buffer.from(request.input));
      if (request.keep === null) process.started.closeStdin();
    } catch (thrown) {
      // A program may end without reading all its input. A kept program that fails to read it may not have the turn.
      if (request.keep !== null) return { is: 'unknown', why: TorporError.from(thrown).message };
    }
    const record = { is: 'written', tag, offset } as const;
    await records.write(request.id, record);
    return record;
  }

  async #processFor({ id, keep, process: wanted }: TurnRequest): Promise<TrackedProcess> {
    const request = { process: wanted, stdin: true, tag: id };
    if (keep === null) return this.#options.launch(request);
    const program = JSON.stringify(wanted.args);
    const running = this.#keptProcesses.get(keep);
    if (running?.process.exit === undefined && running?.program === program) return running.process;
    const process = await this.#options.launch(request);
    this.#keptProcesses.set(keep, { program, process });
    return process;
  }
}
