/** Names of hosts in the one form in which they are compared: lower case, ASCII, no dot at the end. */
import { domainToASCII } from 'node:url';

const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** Undefined when it is no name of a host. Addresses are none, nor is what ends in a number like one. */
export function normalName(text: string): string | undefined {
  const plain = text.replace(/\.$/, '').toLowerCase();
  const name = /^[\x21-\x7e]*$/.test(plain) ? plain : domainToASCII(plain);
  const labels = name.split('.');
  if (name.length > 253 || !labels.every((label) => LABEL.test(label))) return undefined;
  return /^\d+$/.test(labels.at(-1) ?? '') ? undefined : name;
}

/** Stands for the machine that asks; for a sandbox that is the sandbox, and never a name to be resolved. */
export function isLocalhost(name: string): boolean {
  return name === 'localhost' || name.endsWith('.localhost');
}
