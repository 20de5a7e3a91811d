/**
 * The header by which a client distinguishes the gateway's own responses from the app's. An app can forge any status and
 * body, but not this header: the gateway removes it from every response of an app.
 */
export const ANSWERED_BY_HEADER = 'Torpor-Answered-By';
export const ANSWERED_BY_GATEWAY = 'gateway';

/** Whether the gateway itself sent the response, not the app in the sandbox. */
export function isAnsweredByGateway(headers: { get(name: string): string | null }): boolean {
  return headers.get(ANSWERED_BY_HEADER) === ANSWERED_BY_GATEWAY;
}
