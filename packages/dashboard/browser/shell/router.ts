/** The view that the address names, in its fragment: `#/sandboxes/sbx_…/terminal`. */
import { signal } from '@preact/signals';

export interface Route {
  /** The parts of the path. Empty: the first view. */
  readonly parts: readonly string[];
  readonly query: URLSearchParams;
}

export const route = signal<Route>(read());

function read(): Route {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { parts: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/** An address that was typed by hand may have a broken escape. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener('hashchange', () => {
  route.value = read();
});

export function href(...parts: readonly string[]): string {
  return `#/${parts.map(encodeURIComponent).join('/')}`;
}

export function go(...parts: readonly string[]): void {
  location.hash = href(...parts);
}
