/**
 * Reads the output of a program. Lines of stdout that begin with `{"torpor":` are control messages:
 * `{"torpor":{"thread":"…"}}` names the program's own thread, `{"torpor":{"end":"turn_…"}}` ends a turn. Everything else
 * is the answer.
 *
 * `position` of each step is how far the bytes were processed, so that reading can continue there after a crash. The
 * beginning of a line that may still become a control message is not processed yet.
 */
import { StringDecoder } from 'node:string_decoder';

export interface OutputChunk {
  readonly channel: 'stdout' | 'stderr';
  readonly text: string;
}

export interface ReadStep {
  readonly chunks: readonly OutputChunk[];
  /** The program's own thread, if the program named one. */
  readonly thread: string | null;
  readonly ended: boolean;
  /** All bytes before this position were processed. */
  readonly position: number;
}

const CONTROL_PREFIX = '{"torpor":';
/** Control messages are short; a longer line is part of the answer. */
const MAX_CONTROL_LINE_BYTES = 4_096;

export class TurnReader {
  readonly #turn: string;
  readonly #decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };
  /** The beginning of a line of stdout that may become a control message. */
  #held = Buffer.alloc(0);
  #atLineStart = true;

  constructor(turn: string) {
    this.#turn = turn;
  }

  read(channel: 'stdout' | 'stderr', position: number, bytes: Uint8Array): ReadStep {
    const end = position + bytes.length;
    if (channel === 'stderr') {
      // Programs write a control message in one call, so the held bytes are not one.
      const before = this.release();
      const text = this.#decoders.stderr.write(Buffer.from(bytes));
      return { chunks: [...before, ...chunkOf('stderr', text)], thread: null, ended: false, position: end };
    }
    let text = '';
    let thread: string | null = null;
    let ended = false;
    let rest = Buffer.concat([this.#held, bytes]);
    this.#held = Buffer.alloc(0);
    while (rest.length > 0) {
      if (this.#atLineStart && mayBeControlLine(rest)) {
        const line = wholeLine(rest);
        if (line === undefined) {
          this.#held = rest;
          break;
        }
        const message = controlMessageOf(line);
        if (message !== undefined) {
          rest = rest.subarray(line.length);
          thread = message.thread ?? thread;
          ended = message.end === this.#turn;
          if (ended) return { chunks: chunkOf('stdout', text), thread, ended, position: end - rest.length };
          continue;
        }
      }
      const stop = rest.indexOf(10);
      const taken = stop === -1 ? rest.length : stop + 1;
      text += this.#decoders.stdout.write(rest.subarray(0, taken));
      this.#atLineStart = stop !== -1;
      rest = rest.subarray(taken);
    }
    return { chunks: chunkOf('stdout', text), thread, ended, position: end - this.#held.length };
  }

  /** Returns the held bytes when no more output will come. */
  release(): OutputChunk[] {
    const text = this.#decoders.stdout.write(this.#held);
    if (this.#held.length > 0) this.#atLineStart = false;
    this.#held = Buffer.alloc(0);
    return chunkOf('stdout', text);
  }
}

function chunkOf(channel: OutputChunk['channel'], text: string): OutputChunk[] {
  return text === '' ? [] : [{ channel, text }];
}

function mayBeControlLine(bytes: Buffer): boolean {
  const length = Math.min(bytes.length, CONTROL_PREFIX.length);
  if (bytes.toString('latin1', 0, length) !== CONTROL_PREFIX.slice(0, length)) return false;
  return bytes.length <= MAX_CONTROL_LINE_BYTES || wholeLine(bytes) !== undefined;
}

function wholeLine(bytes: Buffer): Buffer | undefined {
  const stop = bytes.subarray(0, MAX_CONTROL_LINE_BYTES).indexOf(10);
  return stop === -1 ? undefined : bytes.subarray(0, stop + 1);
}

function controlMessageOf(line: Buffer): { readonly thread?: string; readonly end?: string } | undefined {
  try {
    const message = fieldOf(JSON.parse(line.toString('utf8')), 'torpor');
    if (typeof message !== 'object' || message === null) return undefined;
    const thread = fieldOf(message, 'thread');
    const end = fieldOf(message, 'end');
    return {
      ...(typeof thread === 'string' && thread.length <= 1_000 ? { thread } : {}),
      ...(typeof end === 'string' ? { end } : {}),
    };
  } catch {
    return undefined;
  }
}

/** Undefined when the value has no such field. The program in the sandbox may write anything. */
function fieldOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}
