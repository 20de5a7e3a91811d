/** The mounts of a namespace as the kernel lists them in `/proc/<pid>/mountinfo`. */

export interface Mount {
  /** The mount point. */
  readonly at: string;
  /** The directory of the file system that is mounted. A suffix `//deleted` marks a source that was deleted. */
  readonly root: string;
  /** Options of the mount itself, such as `ro`. */
  readonly flags: ReadonlySet<string>;
  /** Whether mounts below this one propagate to other namespaces. */
  readonly isShared: boolean;
  /** The type of the file system. */
  readonly type: string;
  /** Options of the file system by name. An option without a value has an empty one. */
  readonly options: ReadonlyMap<string, string>;
}

/** A line is `id parent device root at flags [optional…] - type source options`. */
export function parseMounts(mountinfo: string): Mount[] {
  return mountinfo
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const fields = line.split(' ');
      const separator = fields.indexOf('-', 6);
      const [type = '', , options = ''] = fields.slice(separator + 1);
      return {
        at: unescapeOctal(fields[4] ?? ''),
        root: unescapeOctal(fields[3] ?? ''),
        flags: new Set(fields[5]?.split(',')),
        isShared: fields.slice(6, separator).some((field) => field.startsWith('shared:')),
        type,
        options: new Map(options.split(',').map(parseOption)),
      };
    });
}

function parseOption(text: string): [name: string, value: string] {
  const equals = text.indexOf('=');
  return equals < 0 ? [text, ''] : [text.slice(0, equals), unescapeOctal(text.slice(equals + 1))];
}

/** The kernel writes spaces, tabs, newlines and backslashes as `\` and three octal digits. */
function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}
