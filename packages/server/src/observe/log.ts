/** The log: one JSON object per line, with secrets hidden in every line. */
import { type DestinationStream, type Logger, pino } from 'pino';
import { hideSecrets, loggable } from './redaction.ts';

export type Log = Logger;

export interface LogOptions {
  readonly level?: string;
  readonly destination?: DestinationStream;
}

export function openLog({ level = 'info', destination = pino.destination(2) }: LogOptions = {}): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: {
        level: (label) => ({ level: label }),
        log: (facts) => loggable(facts) as Record<string, unknown>,
      },
      serializers: { err: (error: unknown) => error },
      hooks: { streamWrite: hideSecrets },
    },
    destination,
  );
}
