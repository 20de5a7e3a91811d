/** The contents of the page that shows an error to a person. */
import type { ErrorCode, TorporError } from '@torpor/protocol';
import type { Page } from './page.ts';

const TITLES: Readonly<Partial<Record<ErrorCode, string>>> = {
  not_found: 'There is no such sandbox',
  killed: 'This sandbox is gone',
  lost: 'This sandbox is lost',
  conflict: 'This sandbox stays asleep',
  port_closed: 'Nothing is listening here',
  no_answer: 'The app did not answer',
  forbidden: 'This preview is private',
  unreachable: 'Not available right now',
  capacity: 'Too many requests at once',
  invalid_request: 'This address is not valid',
};

/** `addressOf` returns the preview URL of another port of the same sandbox. */
export function errorPage(error: TorporError, requestId: string, addressOf: (port: number) => string): Page {
  const { code, message, hint, details } = error.toBody();
  const open = Array.isArray(details?.['openPorts']) ? (details['openPorts'] as number[]) : [];
  const isFailed = code === 'conflict' && details?.['state'] === 'failed';
  return {
    title: isFailed ? 'This sandbox never ran' : (TITLES[code] ?? 'That did not work'),
    message: code === 'internal' ? 'Something went wrong inside Torpor.' : message,
    hint: open.length > 0 ? 'These ports are open:' : hint,
    links: open.slice(0, 12).map((port) => ({ text: `port ${port}`, href: addressOf(port) })),
    requestId,
  };
}
