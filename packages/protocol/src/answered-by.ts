/**
 * How a client tells the gateway's own answers from those of the app behind it. Anybody can write a status and a body;
 * the gateway alone can set this header, because it removes it from every answer of an app.
 */
export const ANSWERED_BY_HEADER = 'Torpor-Answered-By';
export const ANSWERED_BY_GATEWAY = 'gateway';

/** Whether the gateway answered, instead of the program in the sandbox. */
export function isAnsweredByGateway(headers: { get(name: string): string | null }): boolean {
  return headers.get(ANSWERED_BY_HEADER) === ANSWERED_BY_GATEWAY;
}
