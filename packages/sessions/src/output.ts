/** The stored output of turns: each chunk is stored once, and can be read any number of times. */
import type { Queryable, Transaction } from '@torpor/engine';
import type { SessionId, TurnId } from '@torpor/protocol';
import { CHANNEL } from './context.ts';
import type { PastTurn } from './turn-port.ts';
import type { OutputChunk } from './turn-reader.ts';

export interface StoredChunk extends OutputChunk {
  readonly position: number;
}

/**
 * Stores the output between two positions. False when output from there is stored already: two servers may read the
 * output of one program.
 */
export async function storeOutput(
  tx: Transaction,
  turnId: TurnId,
  from: number,
  to: number,
  chunks: readonly OutputChunk[],
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE session_turns SET output_end = $3 WHERE id = $1 AND output_end = $2 AND ended_at IS NULL RETURNING id`,
    [turnId, from, to],
  );
  if (rows.length === 0) return false;
  // A step has at most one chunk of each channel, and more bytes than chunks, so the positions are unique.
  for (const [index, { channel, text }] of chunks.entries()) {
    await tx.query(
      'INSERT INTO session_output (turn_id, position, channel, text) VALUES ($1, $2, $3, $4)',
      // Text in PostgreSQL cannot hold a NUL.
      [turnId, from + index, channel, text.replaceAll('\0', '\ufffd')],
    );
  }
  if (chunks.length > 0) tx.notify(CHANNEL);
  return true;
}

export async function readOutput(
  db: Queryable,
  turnId: TurnId,
  after: number,
  limit: number,
): Promise<StoredChunk[]> {
  const rows = await db.query<{ position: number; channel: OutputChunk['channel']; text: string }>(
    `SELECT position, channel, text FROM session_output WHERE turn_id = $1 AND position > $2
     ORDER BY position LIMIT $3`,
    [turnId, after, limit],
  );
  return rows;
}

export async function wholeOutput(db: Queryable, turnId: TurnId): Promise<string> {
  const rows = await db.query<{ text: string }>(
    `SELECT text FROM session_output WHERE turn_id = $1 AND channel = 'stdout' ORDER BY position`,
    [turnId],
  );
  return rows.map(({ text }) => text).join('');
}

/** The turns before a turn, newest last: as many of the newest as fit into the limits. */
export async function historyBefore(
  db: Queryable,
  sessionId: SessionId,
  seq: number,
  limits: { readonly turns: number; readonly bytes: number },
): Promise<PastTurn[]> {
  const rows = await db.query<{ id: TurnId; input: string }>(
    `SELECT id, input FROM session_turns WHERE session_id = $1 AND seq < $2 AND delivered_at IS NOT NULL
     ORDER BY seq DESC LIMIT $3`,
    [sessionId, seq, limits.turns],
  );
  const history: PastTurn[] = [];
  let left = limits.bytes;
  for (const { id, input } of rows) {
    const past = { input, output: await wholeOutput(db, id) };
    left -= Buffer.byteLength(past.input) + Buffer.byteLength(past.output);
    if (left < 0) break;
    history.unshift(past);
  }
  return history;
}

/** How much of an answer is stored, in characters. */
export async function storedLength(db: Queryable, turnId: TurnId): Promise<number> {
  const [row] = await db.query<{ sum: number | null }>(
    'SELECT SUM(LENGTH(text)) AS sum FROM session_output WHERE turn_id = $1',
    [turnId],
  );
  return Number(row?.sum ?? 0);
}
