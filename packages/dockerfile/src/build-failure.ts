/** A Dockerfile that cannot be built. The line is that of the instruction. */
export class BuildFailure extends Error {
  readonly line: number | null;
  /** The sandbox in which a step failed, which still runs. */
  readonly sandbox: string | null;

  constructor(message: string, about: { readonly line?: number; readonly sandbox?: string } = {}) {
    super(message);
    this.name = 'BuildFailure';
    this.line = about.line ?? null;
    this.sandbox = about.sandbox ?? null;
  }
}
