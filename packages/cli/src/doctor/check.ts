/** The result of one check. */
export interface Check {
  /** `note` is information, not a problem. */
  readonly is: 'good' | 'wrong' | 'note';
  readonly what: string;
  readonly detail: string;
  /** How to fix it. */
  readonly todo?: string;
}
