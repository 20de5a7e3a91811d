/** Uploads as a multipart form: each part named `file` is one file, with or without a file name. */
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Busboy, type BusboyHeaders } from '@fastify/busboy';
import { TorporError } from '@torpor/protocol';

export interface FormFile {
  /** Empty when the part has no file name. */
  readonly name: string;
  readonly content: Readable;
}

/** Calls `take` for one file after the other. The next part is read only when the previous one is done. */
export async function readForm(
  body: Readable,
  headers: BusboyHeaders,
  take: (file: FormFile) => Promise<void>,
): Promise<void> {
  const form = openForm(headers);
  const open = new Set<Readable>();
  let taken: Promise<void> = Promise.resolve();
  let failure: unknown;
  form.on('file', (field, content, name) => {
    // The pipeline reports a broken form. A part without a reader must not throw the same error again.
    content.on('error', () => {});
    if (field !== 'file' || failure !== undefined) return void content.resume();
    open.add(content);
    taken = taken
      .then(() => take({ name: decodeName(name), content }))
      .catch((thrown) => {
        failure ??= thrown;
        content.resume();
      })
      .finally(() => open.delete(content));
  });
  try {
    await pipeline(body, form);
  } catch (cause) {
    const error = new TorporError('invalid_request', 'The form is incomplete or malformed.', { cause });
    for (const content of open) content.destroy(error);
    failure ??= error;
  }
  await taken;
  if (failure !== undefined) throw failure;
}

function openForm(headers: BusboyHeaders): InstanceType<typeof Busboy> {
  try {
    // By default Busboy treats a part without a file name as a field, buffers it and cuts it off at 1 MiB.
    return new Busboy({ headers, preservePath: true, isPartAFile: () => true });
  } catch (cause) {
    throw new TorporError('invalid_request', 'The form names no boundary.', { cause });
  }
}

/** Decodes the three characters that a form cannot carry in a file name and that browsers and `fetch` escape. */
function decodeName(name: string | undefined): string {
  return (name ?? '').replace(/%(22|0A|0D)/gi, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
}
