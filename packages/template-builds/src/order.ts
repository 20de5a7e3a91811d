/** What is built. Whoever makes an order has checked it: names, paths and hashes have their forms. */

export type BuildStep = { readonly force: boolean } & (
  | { readonly is: 'run'; readonly command: string; readonly user: string | undefined }
  | {
      readonly is: 'copy';
      /** A path or a pattern in the uploaded archive. */
      readonly source: string;
      readonly target: string;
      readonly owner: string | undefined;
      /** Octal digits. */
      readonly mode: string | undefined;
      /** The name of the uploaded archive. */
      readonly filesHash: string;
    }
  | { readonly is: 'env'; readonly pairs: readonly (readonly [name: string, value: string])[] }
  | { readonly is: 'workdir'; readonly path: string }
  | { readonly is: 'user'; readonly name: string }
);

export interface RegistryCredentials {
  readonly username: string;
  readonly password: string;
}

export interface BuildOrder {
  readonly base:
    | { readonly is: 'template'; readonly name: string }
    | {
        readonly is: 'image';
        readonly reference: string;
        readonly credentials: RegistryCredentials | undefined;
      };
  readonly steps: readonly BuildStep[];
  /** Runs everything again. */
  readonly force: boolean;
  /** Runs in the finished template, and in its sandboxes. */
  readonly startCommand: string | undefined;
  /** The template is ready when this command ends with exit code 0. */
  readonly readyCommand: string | undefined;
}
