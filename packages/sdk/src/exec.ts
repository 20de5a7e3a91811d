/** Runs a command: with one reply at its end, or with its output as a stream. */
import {
  type BackgroundReply,
  backgroundReplySchema,
  EXEC_EVENT_DATA,
  type ExecEventData,
  type ExecEventName,
  type ExecReply,
  type ExecRequest,
  execReplySchema,
} from '@torpor/protocol';
import { errorInside, InternalError } from './errors.ts';
import type { CallOptions, JsonCalls } from './json-calls.ts';
import { serverSentEvents } from './server-sent-events.ts';
import { answeredBy, checked, type Schema } from './validate.ts';

/** The command alone, or with its directory, environment and other options. */
export type Command = string | Omit<ExecRequest, 'background'>;

/** The events of a streamed command, in this order: start, output, end. A failure is thrown instead. */
export type ExecEvent = {
  [N in Exclude<ExecEventName, 'error'>]: { readonly type: N } & ExecEventData<N>;
}[Exclude<ExecEventName, 'error'>];

export async function exec(
  calls: JsonCalls,
  path: string,
  command: Command,
  options: CallOptions,
): Promise<ExecReply> {
  return calls.post(path, execReplySchema, requestOf(command), options);
}

export async function execInBackground(
  calls: JsonCalls,
  path: string,
  command: Command,
  options: CallOptions,
): Promise<BackgroundReply> {
  const request = { ...requestOf(command), background: true };
  return calls.post(path, backgroundReplySchema, request, options);
}

/** Leaving the loop early closes the stream and ends the command. */
export async function* execStream(
  { transport }: JsonCalls,
  path: string,
  command: Command,
  options: CallOptions,
): AsyncGenerator<ExecEvent, void> {
  const response = await transport.ask({
    method: 'POST',
    path,
    json: requestOf(command),
    headers: { accept: 'text/event-stream' },
    ...options,
  });
  const about = answeredBy(response);
  if (response.body === null) throw new InternalError("The server's answer is empty.", {}, about);
  for await (const { event, data } of serverSentEvents(response.body)) {
    if (!isExecEvent(event)) continue;
    if (event === 'error') throw errorInside(about.requestId, { error: JSON.parse(data) });
    const schema: Schema<object> = EXEC_EVENT_DATA[event];
    yield { type: event, ...checked(data, schema, about) } as ExecEvent;
    if (event === 'end') return;
  }
  throw new InternalError('The stream ended before the command did.', {}, about);
}

function requestOf(command: Command): Omit<ExecRequest, 'background'> {
  return typeof command === 'string' ? { command } : command;
}

function isExecEvent(name: string): name is ExecEventName {
  return Object.hasOwn(EXEC_EVENT_DATA, name);
}
