/** Cleans a line of output before it is stored: removes terminal codes and secrets, and limits its length. */

const MAX_CHARACTERS = 2_000;

/** Control sequences (colours, cursor), operating system commands (titles, links), and two-byte codes. */
const TERMINAL_CODES =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
  /[\u001b\u009b](?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: tabs stay, everything else of the kind goes.
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

const HIDDEN = '[redacted]';

/** Each pattern with its replacement, which may keep the name of a secret but not the secret. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/\b(postgres(?:ql)?|redis|rediss|mongodb(?:\+srv)?|mysql|amqps?):\/\/[^\s'"]+/gi, `$1://${HIDDEN}`],
  [/\b(https?:\/\/)[^\s/:@'"]+:[^\s/@'"]+@/gi, `$1${HIDDEN}@`],
  [/\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}/gi, `$1 ${HIDDEN}`],
  [/\bsk-[A-Za-z0-9_-]{8,}/g, HIDDEN],
  [/\b(?:pk|sk|rk)_(?:live|test)_[A-Za-z0-9]{8,}/g, HIDDEN],
  [/\bAKIA[0-9A-Z]{12,}/g, HIDDEN],
  [/\bgh[pousr]_[A-Za-z0-9]{20,}/g, HIDDEN],
  [/\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*/g, HIDDEN],
  [
    /\b([\w-]*(?:api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d|credential)s?["']?\s*[=:]\s*)(["']?)[^\s"',;]+\2/gi,
    `$1${HIDDEN}`,
  ],
];

/** Undefined for an empty line. `known` are secrets that are replaced wherever they appear. */
export function cleanLine(line: string, known: readonly string[]): string | undefined {
  let text = line.replace(TERMINAL_CODES, '').replace(CONTROL, '').trimEnd();
  if (text.trim() === '') return undefined;
  for (const secret of known) if (secret !== '') text = text.replaceAll(secret, HIDDEN);
  for (const [form, left] of SECRETS) text = text.replace(form, left);
  if (!text.isWellFormed()) text = text.toWellFormed();
  return text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS).toWellFormed()}…` : text;
}
