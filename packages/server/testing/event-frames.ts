/** Reads server-sent events as a client does. */

export interface ReadFrame {
  readonly id?: string;
  readonly event?: string;
  readonly data?: unknown;
  readonly comment?: string;
}

/** Yields every frame of a response as it arrives. */
export async function* framesOf(response: Response): AsyncGenerator<ReadFrame> {
  let text = '';
  const decoder = new TextDecoder();
  if (response.body === null) return;
  for await (const chunk of response.body) {
    text += decoder.decode(chunk, { stream: true });
    const frames = text.split('\n\n');
    text = frames.pop() ?? '';
    for (const frame of frames) yield frameOf(frame);
  }
}

export function frameOf(text: string): ReadFrame {
  if (text.startsWith(':')) return { comment: text.slice(1).trim() };
  const fields = Object.fromEntries(text.split('\n').map((line) => line.split(/: (.*)/s).slice(0, 2)));
  const { data, ...rest } = fields as { id?: string; event?: string; data?: string };
  return { ...rest, ...(data === undefined ? {} : { data: JSON.parse(data) }) };
}
