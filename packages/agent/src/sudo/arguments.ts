/** Parses the arguments of `sudo`, with their usual meaning. */

export interface Command {
  /** A user name, or `#` and a user id. */
  readonly user: string;
  readonly group: string | undefined;
  readonly shell: 'none' | 'shell' | 'login';
  /** Empty only with a shell, which is interactive then. */
  readonly words: readonly string[];
  readonly assignments: Readonly<Record<string, string>>;
  /** The caller's variables that the command gets, beside the few that it always gets. */
  readonly keep: 'all' | readonly string[];
  readonly setHome: boolean;
  readonly directory: string | undefined;
  readonly background: boolean;
}

export type SudoAction =
  | { readonly is: 'run'; readonly command: Command }
  /** Only checks whether the caller may use sudo. */
  | { readonly is: 'list' | 'validate' }
  | { readonly is: 'forget' | 'help' | 'version' }
  | { readonly is: 'mistake'; readonly why: string };

/** Options about passwords and descriptors are accepted without effect. */
const LONG_OPTIONS: Readonly<Record<string, string>> = {
  askpass: 'A',
  background: 'b',
  bell: 'B',
  chdir: 'D',
  'close-from': 'C',
  edit: 'e',
  group: 'g',
  help: 'h',
  list: 'l',
  login: 'i',
  'no-update': 'N',
  'non-interactive': 'n',
  'preserve-env': 'E',
  'preserve-groups': 'P',
  prompt: 'p',
  'remove-timestamp': 'K',
  'reset-timestamp': 'k',
  'set-home': 'H',
  shell: 's',
  stdin: 'S',
  user: 'u',
  validate: 'v',
  version: 'V',
};

const LETTERS_WITH_VALUE = new Set(['C', 'D', 'g', 'p', 'u']);
const KNOWN_LETTERS = new Set(Object.values(LONG_OPTIONS));

const ASSIGNMENT = /^[A-Za-z_][A-Za-z0-9_]*=/;

interface Flag {
  readonly letter: string;
  readonly value: string | undefined;
}

interface Scanned {
  readonly flags: readonly Flag[];
  readonly assignments: Readonly<Record<string, string>>;
  readonly words: readonly string[];
}

export function parseSudo(args: readonly string[]): SudoAction {
  const scanned = scanArguments(args);
  return 'why' in scanned ? { is: 'mistake', why: scanned.why } : actionOf(scanned);
}

/** Reads flags and assignments in any order, up to the first word that is neither. */
function scanArguments(args: readonly string[]): Scanned | { readonly why: string } {
  const flags: Flag[] = [];
  const assignments: Record<string, string> = {};
  const rest = [...args];
  for (let word = rest.shift(); word !== undefined; word = rest.shift()) {
    if (word === '--') break;
    if (ASSIGNMENT.test(word)) {
      const mark = word.indexOf('=');
      assignments[word.slice(0, mark)] = word.slice(mark + 1);
    } else if (word.startsWith('-') && word !== '-') {
      const found = word.startsWith('--') ? longFlag(word, rest) : shortFlags(word, rest);
      if ('why' in found) return found;
      flags.push(...found.flags);
    } else {
      rest.unshift(word);
      break;
    }
  }
  return { flags, assignments, words: rest };
}

type Flags = { readonly flags: readonly Flag[] } | { readonly why: string };

function longFlag(word: string, rest: string[]): Flags {
  const [, name = '', value] = /^--([^=]*)(?:=(.*))?$/s.exec(word) ?? [];
  const letter = LONG_OPTIONS[name];
  if (letter === undefined) return { why: `there is no option --${name} here` };
  if (!LETTERS_WITH_VALUE.has(letter)) return { flags: [{ letter, value }] };
  const given = value ?? rest.shift();
  return given === undefined
    ? { why: `option --${name} needs a value` }
    : { flags: [{ letter, value: given }] };
}

/** `-nE`, `-u root` and `-uroot`. */
function shortFlags(word: string, rest: string[]): Flags {
  const flags: Flag[] = [];
  for (let at = 1; at < word.length; at += 1) {
    const letter = word.charAt(at);
    if (!KNOWN_LETTERS.has(letter)) return { why: `there is no option -${letter} here` };
    if (!LETTERS_WITH_VALUE.has(letter)) {
      flags.push({ letter, value: undefined });
      continue;
    }
    const value = word.slice(at + 1) || rest.shift();
    if (value === undefined) return { why: `option -${letter} needs a value` };
    flags.push({ letter, value });
    break;
  }
  return { flags };
}

function actionOf({ flags, assignments, words }: Scanned): SudoAction {
  const has = (letter: string) => flags.some((flag) => flag.letter === letter);
  const given = (letter: string) => flags.findLast((flag) => flag.letter === letter)?.value;
  if (has('h')) return { is: 'help' };
  if (has('V')) return { is: 'version' };
  if (has('e')) return { is: 'mistake', why: 'editing with -e is not offered; run an editor instead' };
  if (has('l')) return { is: 'list' };
  if (has('v')) return { is: 'validate' };
  const shell = has('i') ? 'login' : has('s') ? 'shell' : 'none';
  if (words.length === 0 && shell === 'none') {
    if (has('k') || has('K')) return { is: 'forget' };
    return { is: 'mistake', why: 'name a command, or ask for a shell with -s or -i' };
  }
  const kept = flags.filter((flag) => flag.letter === 'E');
  const command: Command = {
    user: given('u') ?? 'root',
    group: given('g'),
    shell,
    words,
    assignments,
    keep: kept.some((flag) => flag.value === undefined)
      ? 'all'
      : kept.flatMap((flag) => (flag.value ?? '').split(',')),
    setHome: has('H'),
    directory: given('D'),
    background: has('b'),
  };
  return { is: 'run', command };
}
