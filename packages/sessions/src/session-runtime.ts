/** A session may need a runtime, by its spec or by its sandbox, that this server does not have. */
import { TorporError } from '@torpor/protocol';
import type { Context } from './context.ts';
import type { Session } from './session.ts';

/** Undefined when the server has the runtime, or the session needs no particular one. */
export function missingRuntime(
  { engine }: Pick<Context, 'engine'>,
  { key, sandboxId }: Pick<Session, 'key' | 'sandboxId'>,
  runtime: string | undefined,
): TorporError | undefined {
  const configured = engine.runtimes().map(({ name }) => name);
  if (runtime === undefined || configured.includes(runtime)) return undefined;
  return new TorporError(
    'capability_unsupported',
    `The session "${key}" needs the runtime "${runtime}", which this server does not have.`,
    {
      ...(sandboxId === null ? {} : { sandboxId }),
      hint:
        `Configure that runtime again, or move the session: torpor session move ${key} --runtime <name> ` +
        `(here: ${configured.join(', ')}). Files and processes stay behind when it moves.`,
      details: { runtime, configured },
    },
  );
}

export function requireRuntime(
  ctx: Pick<Context, 'engine'>,
  session: Pick<Session, 'key' | 'sandboxId'>,
  runtime: string,
): void {
  const missing = missingRuntime(ctx, session, runtime);
  if (missing !== undefined) throw missing;
}
