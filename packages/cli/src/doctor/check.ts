/** One thing that was looked at. */
export interface Check {
  /** A note is worth knowing and nothing to worry about. */
  readonly is: 'good' | 'wrong' | 'note';
  readonly what: string;
  readonly detail: string;
  /** What to do about it. */
  readonly todo?: string;
}
