/** Normalises host names for comparison: lower case, ASCII, no final dot. */
import { domainToASCII } from 'node:url';

const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** Undefined when the text is not a host name. An address is none, nor is a text that ends in a number like an address. */
export function normalName(text: string): string | undefined {
  const plain = text.replace(/\.$/, '').toLowerCase();
  const name = /^[\x21-\x7e]*$/.test(plain) ? plain : domainToASCII(plain);
  const labels = name.split('.');
  if (name.length > 253 || !labels.every((label) => LABEL.test(label))) return undefined;
  return /^\d+$/.test(labels.at(-1) ?? '') ? undefined : name;
}

/** Means the sandbox itself and is never looked up. */
export function isLocalhost(name: string): boolean {
  return name === 'localhost' || name.endsWith('.localhost');
}
