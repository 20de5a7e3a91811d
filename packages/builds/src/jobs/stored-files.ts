/** The files of a build in the database, as the runner made them. */
import { isUtf8 } from 'node:buffer';
import type { Queryable, Transaction } from '@torpor/engine';
import type { JobId } from '@torpor/protocol';
import type { GeneratedFile } from '../runners/generated-files.ts';

const ROWS_AT_ONCE = 100;

/** Replaces the files of an earlier attempt. */
export async function storeFiles(tx: Transaction, id: JobId, files: readonly GeneratedFile[]): Promise<void> {
  await tx.query('DELETE FROM build_files WHERE job_id = $1', [id]);
  for (let at = 0; at < files.length; at += ROWS_AT_ONCE) {
    const page = files.slice(at, at + ROWS_AT_ONCE);
    const params = page.flatMap(({ path, content, executable }) => {
      const encoding = isText(content) ? 'utf8' : 'base64';
      return [id, path, encoding, Buffer.from(content).toString(encoding), executable ? 1 : 0];
    });
    const rows = page.map((_, row) => `(${[1, 2, 3, 4, 5].map((n) => `$${5 * row + n}`).join(', ')})`);
    await tx.query(
      `INSERT INTO build_files (job_id, path, encoding, content, executable) VALUES ${rows.join(', ')}`,
      params,
    );
  }
}

export async function readFiles(db: Queryable, id: JobId): Promise<GeneratedFile[]> {
  const rows = await db.query<{
    path: string;
    encoding: 'utf8' | 'base64';
    content: string;
    executable: number;
  }>('SELECT path, encoding, content, executable FROM build_files WHERE job_id = $1 ORDER BY path', [id]);
  return rows.map(({ path, encoding, content, executable }) => ({
    path,
    content: new Uint8Array(Buffer.from(content, encoding)),
    executable: executable === 1,
  }));
}

/** NUL is valid in UTF-8, but PostgreSQL refuses it in text. */
function isText(content: Uint8Array): boolean {
  return isUtf8(content) && !content.includes(0);
}
