/** The mounts of a namespace as the kernel lists them, in `/proc/<pid>/mountinfo`. */

export interface Mount {
  readonly at: string;
  readonly type: string;
  /** Those of the file system, by name; an option without a value has an empty one. */
  readonly options: ReadonlyMap<string, string>;
}

/**
 * A line is `id parent device root at options [optional…] - type source options`; characters that would
 * break it up stand in it as `\` and three octal digits.
 */
export function parseMounts(text: string): Mount[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const fields = line.split(' ');
      const rest = fields.slice(fields.indexOf('-', 6) + 1);
      return {
        at: plain(fields[4] ?? ''),
        type: rest[0] ?? '',
        options: new Map((rest[2] ?? '').split(',').map(optionOf)),
      };
    });
}

function optionOf(text: string): [name: string, value: string] {
  const equals = text.indexOf('=');
  return equals < 0 ? [text, ''] : [text.slice(0, equals), plain(text.slice(equals + 1))];
}

function plain(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}
